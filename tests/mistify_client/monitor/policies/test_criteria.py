"""The settings of the policy `contextual`, and its messages about mistakes."""

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.policies.base import make_policy
from mistify_client.monitor.policies.criteria import ContextualParams


def weights(**settings):
    return {name.value: round(share, 3) for name, share in ContextualParams(**settings).weights.items()}


def test_single_figures_are_shares():
    assert weights(importance={"accuracy": 6, "energy": 2}) == {"accuracy": 0.75, "energy": 0.25}
    assert sum(ContextualParams().weights.values()) == pytest.approx(1)


def test_comparisons_are_weighed_by_the_hierarchy():
    pairs = [["accuracy", "latency", 2], ["accuracy", "energy", 6], ["latency", "energy", 3]]
    assert weights(comparisons=pairs) == {"accuracy": 0.6, "latency": 0.3, "energy": 0.1}


def test_the_order_of_comparisons_does_not_matter():
    pairs = [["energy", "accuracy", 3], ["latency", "energy", 2], ["latency", "accuracy", 5]]
    assert weights(comparisons=pairs) == weights(comparisons=pairs[::-1])


@pytest.mark.parametrize(
    ("settings", "place", "message"),
    [
        ({"importance": {}}, "importance", "the importance of at least one of accuracy"),
        ({"importance": {"accuracy": 0}}, "importance.accuracy", "got 0; expected a number from 1 to 9"),
        ({"importance": {"energy": 12}}, "importance.energy", "got 12; expected a number from 1 to 9"),
        ({"importance": {"latncy": 3}}, "importance.latncy", 'did you mean "latency"'),
        ({"comparisons": [["accuracy", "speed", 2]]}, "comparisons[0]", "one of accuracy, energy, latency"),
        (
            {"comparisons": [["accuracy", "latency"]]},
            "comparisons[0]",
            "two criteria, .* and a number from 1",
        ),
        ({"comparisons": [["accuracy", "latency", 0.5]]}, "comparisons[0]", "a number from 1 to 9"),
        ({"comparisons": [["accuracy", "accuracy", 2]]}, "comparisons[0]", "name another one"),
        (
            {"comparisons": [["accuracy", "latency", 2], ["latency", "accuracy", 3]]},
            "comparisons[1]",
            r'got \["latency", "accuracy", 3\]; expected one comparison for each pair',
        ),
        (
            {"comparisons": [["accuracy", "latency", 2], ["accuracy", "energy", 3]]},
            "comparisons",
            r'add \["latency", "energy", 1\] with your own figures',
        ),
        (
            {"importance": {"accuracy": 2}, "comparisons": [["accuracy", "latency", 2]]},
            "comparisons",
            "remove one of them",
        ),
        ({"battery": "on"}, "battery", '"sensor", "ignore" or a share from 0 to 1'),
        ({"battery": 1.2}, "battery", '"sensor", "ignore" or a share from 0 to 1'),
        ({"dwell": 3}, "dwell", "write its unit"),
    ],
)
def test_a_mistake_is_reported_with_its_place(settings, place, message):
    with pytest.raises(MistifyError, match=message) as caught:
        make_policy({"name": "contextual", **settings})
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert [problem.place for problem in caught.value.problems] == [f"policy.{place}"]


def test_the_comparison_that_contradicts_most_is_named_with_a_consistent_value():
    pairs = [
        ["accuracy", "latency", 2],
        ["accuracy", "energy", 4],
        ["accuracy", "memory", 8],
        ["energy", "latency", 9],
        ["latency", "memory", 4],
        ["energy", "memory", 2],
    ]
    with pytest.raises(MistifyError) as caught:
        make_policy({"name": "contextual", "comparisons": pairs})
    (problem,) = caught.value.problems
    assert (problem.place, problem.value) == ("policy.comparisons[3]", '["energy", "latency", 9]')
    assert "a consistency ratio of at most 0.1 instead of 0.44: this one contradicts" in problem.expected
    assert problem.fix == 'write ["latency", "energy", 2], which makes it 0'
    pairs[3] = ["latency", "energy", 2]
    assert weights(comparisons=pairs)["accuracy"] == pytest.approx(8 / 15, abs=1e-3)


def test_comparisons_in_a_circle_need_more_than_one_correction():
    circle = [["accuracy", "latency", 9], ["latency", "energy", 9], ["energy", "accuracy", 9]]
    with pytest.raises(MistifyError, match="and correct the others as well"):
        make_policy({"name": "contextual", "comparisons": circle})
