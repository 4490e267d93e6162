import pytest

from mistify.errors import MistifyError
from mistify.peers.hints import Hints
from mistify.peers.membership import MemberKey


def test_a_member_id_depends_on_the_secret_but_does_not_reveal_it():
    one, other = (MemberKey("group", bytes([number]) * 32) for number in (1, 2))
    assert one.member != other.member
    assert len(bytes.fromhex(one.member)) == 16
    assert one.secret.hex() not in one.member


def test_every_problem_is_reported_at_once():
    with pytest.raises(MistifyError) as caught:
        Hints.of({"view_degrees": -1, "labels": [2], "colour": "red"})
    assert {problem.place for problem in caught.value.problems} == {
        "hints.view_degrees", "hints.labels", "hints.colour",
    }  # fmt: skip
