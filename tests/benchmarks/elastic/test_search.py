"""When a search has reached an accuracy, and its choice at that time."""

import pytest

from benchmarks.elastic.search import SIDES, Moment, Watched, bests, figures_of, main, reached_by
from benchmarks.harness.worker import TRAIN
from mistify_client.subnets.search.candidates import Candidate, SubnetScore
from tests.mistify_client.subnets.spaces import known


def test_an_accuracy_counts_from_when_it_is_kept():
    """It reached 60% by chance before, and lost it again."""
    one = [Moment(1.0, 10, 50.0), Moment(2.0, 20, 60.0), Moment(3.0, 30, 55.0), Moment(4.0, 40, 61.0)]
    other = [Moment(0.5, 5, 58.0), Moment(0.7, 7, 60.0)]
    assert reached_by(one, other) == (one[3], other[1])
    assert reached_by(other, one) == (other[1], one[3])


def test_both_sides_reach_the_lower_final_accuracy_by_their_ends():
    one = [Moment(1.0, 10, 50.0), Moment(2.0, 20, 63.0)]
    other = [Moment(0.5, 5, 52.0), Moment(0.7, 7, 49.0)]
    assert reached_by(one, other) == (one[0], other[0])


def test_results_are_medians_over_the_seeds():
    def searched(seconds):
        moments = {name: [Moment(seconds[name], int(10 * seconds[name]), 60.0)] for name in SIDES}
        return moments | {"evolution": [Moment(0.1, 2, 10.0), *moments["evolution"]]}

    runs = [
        searched({"evolution": slow, "annealing": 12.0, "paper": 2.0, "additive": 1.0})
        for slow in (30.0, 20.0, 90.0)
    ]
    figures = figures_of(runs)
    assert figures["evolution_over_paper_seconds"] == pytest.approx(15.0)
    assert figures["evolution_over_additive_subnets"] == pytest.approx(30.0)
    assert figures["annealing_over_paper_seconds"] == pytest.approx(6.0)
    assert figures["additive_over_paper_subnets"] == pytest.approx(0.5)
    assert figures["evolution_accuracy"] == 60.0
    assert figures["evolution_seconds"] == 30.0


def test_the_whole_time_counts_if_the_accuracy_of_the_faster_side_is_never_reached():
    fast = [Moment(1.0, 40, 55.0), Moment(2.0, 70, 56.0), Moment(4.0, 80, 56.0)]
    slow = {"evolution": [Moment(10.0, 90, 54.0), Moment(90.0, 3_100, 54.0)]}
    slow["annealing"] = [Moment(10.0, 90, 54.0), Moment(16.0, 95, 56.5), Moment(60.0, 1_800, 56.5)]
    figures = figures_of([slow | {"paper": fast, "additive": fast}])
    assert figures["evolution_over_additive_seconds_to_its_accuracy"] == pytest.approx(90 / 2)
    assert figures["annealing_over_additive_seconds_to_its_accuracy"] == pytest.approx(16 / 2)
    assert figures["evolution_over_additive_seconds"] == pytest.approx(10 / 1)


def test_the_best_so_far_is_within_the_budget():
    """In the order of scoring; an equally good subnet does not replace the earlier one."""
    subnets = list(known(4).space)[:6]
    accuracies, latencies_ms = (0.9, 0.3, 0.5, 0.5, 0.95, 0.7), (9.0, 5.0, 5.0, 4.0, 6.0, 5.0)
    candidates = [
        Candidate(subnet, latency_ms, SubnetScore(accuracy, 1.0))
        for subnet, accuracy, latency_ms in zip(subnets, accuracies, latencies_ms, strict=True)
    ]
    assert bests(candidates, 5.0) == [1, 2, 5]


@pytest.mark.parametrize("one_by_one", [True, False])
def test_each_subnet_has_the_time_at_which_its_group_was_scored(one_by_one, monkeypatch):
    own = known(4)
    subnets, groups = list(own.space)[:5], []
    monkeypatch.setattr("benchmarks.elastic.search.process_time", lambda: 10.0 + sum(groups))

    def scorer(group):
        groups.append(len(group))
        return [SubnetScore(1 - own.lost_by(subnet), 0.0) for subnet in group]

    watched = Watched(scorer, one_by_one=one_by_one)
    scores = watched(subnets[:3]) + watched(subnets[3:])
    assert [score.accuracy for score in scores] == pytest.approx([1 - own.lost_by(one) for one in subnets])
    assert groups == ([1] * 5 if one_by_one else [3, 2])
    assert watched.seconds == ([1, 2, 3, 4, 5] if one_by_one else [3, 3, 3, 5, 5])


def test_the_benchmark_is_skipped_without_data(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("MISTIFY_TEST_DATA", raising=False)
    assert main(["--data", str(tmp_path)]) == 77
    assert TRAIN in "".join(capsys.readouterr().out.split())
