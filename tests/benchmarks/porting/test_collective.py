"""The results of the comparison."""

import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.porting.collective import (
    COUNTS,
    SMALLEST,
    TARGETS,
    _quick,
    by_algorithm,
    figures_of,
    main,
    planned,
    shares_of,
)
from benchmarks.porting.collective_comparison import Comparison, Ported


def ported(accuracy, seconds, steps, goals=16):
    """Return ported goals with the same accuracy."""
    return Ported(dict.fromkeys(shares_of(goals), accuracy), seconds, steps)


def comparison(accuracy, goals=16):
    """Return a path in 10 s and a tool with 60% after 1 s and 100 steps per goal, 70% after 4 s and 400."""
    curve = {400: ported(70.0, 64.0, 6_400), 100: ported(60.0, 16.0, 1_600)}
    return Comparison({goals: ported(accuracy, 10.0, 800, goals)}, {"morphnet": curve})


def test_limits_of_fewer_goals_are_among_those_of_more():
    for count in (1, 2, 4, 8, 16):
        assert set(shares_of(count)) <= set(shares_of(2 * count))
        assert shares_of(count)[-1] == SMALLEST
        assert max(shares_of(count)) < 1


@pytest.mark.parametrize(("accuracy", "seconds"), [(60.0, 16), (65.0, 32), (70.0, 64), (75.0, 64), (59.9, 0)])
def test_the_time_of_a_tool_counts_at_the_same_accuracy(accuracy, seconds):
    assert comparison(accuracy).times_faster("morphnet", 16) == pytest.approx(seconds / 10)
    assert comparison(accuracy).times_fewer_steps("morphnet", 16) == pytest.approx(100 * seconds / 800)


def test_separately_ported_goals_are_scaled_to_the_number_of_goals():
    """Each of four goals takes as long as one of sixteen; only the four are compared."""
    few = comparison(65.0, goals=4)
    assert few.times_faster("morphnet", 4) == pytest.approx(32 / 10 * 4 / 16)
    curve = dict(few.cases["morphnet"])
    others = {share: 0.0 for share in curve[100].accuracies if share not in few.collective[4].accuracies}
    curve[100] = Ported({**curve[100].accuracies, **others}, 16.0, 1_600)
    assert Comparison(few.collective, {"morphnet": curve}).times_faster("morphnet", 4) == pytest.approx(0.8)


def test_more_steps_without_a_higher_accuracy_do_not_count():
    curve = {100: ported(60.0, 16.0, 1_600), 200: ported(59.0, 32.0, 3_200), 400: ported(60.0, 64.0, 6_400)}
    result = Comparison({16: ported(60.0, 10.0, 800)}, {"morphnet": curve})
    assert result.times_faster("morphnet", 16) == pytest.approx(1.6)


def test_points_are_means_over_the_goals_of_both_sides():
    assert comparison(68.5).points_below("morphnet", 400, 16) == pytest.approx(1.5)
    assert comparison(68.5, goals=4).points_below("morphnet", 100, 4) == pytest.approx(-8.5)


def test_packages_count_on_all_sides():
    """A package takes 2 s: 16 goals take 10 + 32 s together, and 16 + 32 s separately for 60%."""
    curve = {100: Ported(dict.fromkeys(shares_of(16), 60.0), 16.0, 1_600, 32.0)}
    together = Ported(dict.fromkeys(shares_of(16), 60.0), 10.0, 800, 32.0)
    result = Comparison({16: together}, {"morphnet": curve})
    assert result.times_faster("morphnet", 16) == pytest.approx(48 / 42)
    assert result.adapting_times_faster("morphnet", 16) == pytest.approx(1.6)


def test_goals_are_adapted_by_their_planned_algorithm(tmp_path):
    shares = shares_of(4)
    batch = planned(_quick(), shares, tmp_path)
    algorithms = by_algorithm(batch, shares)
    assert sorted(share for own in algorithms.values() for share in own) == sorted(shares)
    assert algorithms.keys() == {edge.algorithm for edge in batch.edges}


def test_every_target_has_a_result():
    steps = (100, 300, 900, 1_000)
    curves = {tool: {at: ported(60.0, 16.0, at) for at in steps} for tool in ("morphnet", "Torch-Pruning")}
    figures = figures_of(Comparison({n: ported(60.0, 10.0, 800, min(n, 16)) for n in COUNTS}, curves))
    names = {f"{network}_{figure}" for network in ("resnet8", "digits") for figure in figures}
    assert names >= TARGETS.keys()


@pytest.mark.parametrize("arguments", [[], ["--data", "/nowhere"], ["--network", "resnet8"]])
def test_the_benchmark_is_skipped_without_data(arguments, monkeypatch, capsys):
    monkeypatch.delenv("MISTIFY_TEST_DATA", raising=False)
    assert main(arguments) == 77
    assert "--data DIR" in capsys.readouterr().out
