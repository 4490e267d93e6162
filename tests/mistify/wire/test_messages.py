from dataclasses import dataclass

import pytest

from mistify.v1 import porting_pb2 as pb
from mistify.wire.messages import Codec, Converter


@dataclass(frozen=True)
class Middle:
    middle: float


@dataclass(frozen=True)
class Achieved:
    accuracy: float | None


@dataclass(frozen=True)
class Opaque:
    middle: complex


def test_a_declared_codec_takes_precedence_over_the_derived_one() -> None:
    converter = Converter({float: Codec(lambda value: value / 10, lambda number: number * 10)})
    message = converter.to_message(Middle(20.0), pb.Interval)
    assert message.middle == 2.0
    assert converter.from_message(message, Middle) == Middle(20.0)


@pytest.mark.parametrize("goal", [Achieved(0.0), Achieved(None)])
def test_zero_and_none_are_distinguished_in_optional_fields(goal: Achieved) -> None:
    message = Converter().to_message(goal, pb.Goal)
    assert Converter().from_message(message, Achieved) == goal


def test_a_type_without_a_codec_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"complex.*cannot be converted"):
        Converter().to_message(Opaque(1j), pb.Interval)
