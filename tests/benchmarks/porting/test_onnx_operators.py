import pytest

pytest.importorskip("onnx")

from benchmarks.porting.onnx_node_tests import check_on_constants, node_tests
from benchmarks.porting.onnx_operators import LIMITS, REFUSALS, mistakes, refusal_for, table
from executors.sources.onnx.folding import FOLDED
from executors.sources.onnx.registry import OPERATORS
from tests.support.paths import REPOSITORY


@pytest.mark.sampled
@pytest.mark.parametrize("operator", sorted(OPERATORS))
def test_tests_of_onnx_pass_or_are_refused_by_name(operator: str) -> None:
    assert list(mistakes(operator)) == []


@pytest.mark.parametrize("operator", sorted(FOLDED))
def test_constants_are_those_of_the_tests_of_onnx(operator: str) -> None:
    for test in node_tests()[operator]:
        check_on_constants(test)


def test_the_table_is_current() -> None:
    assert (REPOSITORY / "docs" / "onnx-operators.md").read_text() == table(), "run make onnx-operators"


def test_every_refusal_is_of_a_test_of_an_operator_that_is_read() -> None:
    read = [test for operator in OPERATORS for test in node_tests()[operator]]
    assert {refusal_for(test) for test in read} == {*REFUSALS, None}
    assert LIMITS.keys() <= OPERATORS.keys()


def test_wrong_results_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPERATORS, "Tanh", lambda _builder, _node, value: value)
    assert [mistake.partition(":")[0] for mistake in mistakes("Tanh")] == ["tanh", "tanh_example"]


def test_missing_refusals_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.porting.onnx_operators.REFUSALS", ())
    assert "by dilations" in "".join(mistakes("MaxPool"))
