"""What the figures of the comparison say, and which per-case run counts."""

import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.collective import (
    LADDER,
    TARGETS,
    Comparison,
    _networks,
    figures_of,
    least_place,
    main,
    shares_of,
    steps_of,
)
from benchmarks.porting import Reached


def reached(accuracy, steps, seconds, tracing=0.0):
    return Reached(accuracy, 0.5, steps, {"training": seconds, "tracing": tracing})


def comparison(losses, as_accurate=0.0, tracing=0.0):
    """A path that loses so much against fully trained runs, and others that are as accurate but for this."""
    ours = {share: reached(80.0, 100, 2.0) for share in shares_of(len(losses))}
    cases = {share: reached(80.0 + as_accurate, 900, 12.0, tracing) for share in ours}
    full = {share: reached(80.0 + loss, 1000, 13.0) for share, loss in zip(ours, losses, strict=True)}
    return Comparison(ours, cases, full)


def test_shares_of_fewer_goals_are_among_those_of_more():
    for count in (1, 2, 4, 8, 16):
        assert set(shares_of(count)) <= set(shares_of(2 * count))
        assert shares_of(count)[-1] == 0.125
        assert max(shares_of(count)) < 2


def test_goals_smaller_than_the_source_have_the_steps():
    assert steps_of(shares_of(4), 600) == {1.0: LADDER[0], 0.5: 200, 0.25: 200, 0.125: 200}


def test_the_least_steps_that_are_enough_count_wherever_the_search_starts():
    accuracies = [10 * place for place in range(len(LADDER))]
    for target in (0, 35, 40, 10 * len(LADDER)):
        expected = min(-(-target // 10), len(LADDER) - 1)
        for start in range(len(LADDER)):
            assert least_place(accuracies.__getitem__, target, start) == expected


def test_goals_ported_per_case_count_for_those_between_them():
    ours = {share: Reached(80.0, share, 10, {"training": 1.0}) for share in shares_of(4)}
    cases = {
        share: Reached(81.0 if share < 0.5 else 79.0, share, 30, {"training": 5.0})
        for share in list(ours)[1::2]
    }
    result = Comparison(ours, cases, cases)
    assert (result.time_ratio, result.step_ratio) == (5.0, 3.0)
    assert result.losses == [-1.0, 1.0]


def test_ratios_are_of_the_totals():
    result = comparison([0.0, 0.4])
    assert (result.step_ratio, result.time_ratio, result.full_step_ratio) == (9.0, 6.0, 10.0)


def test_tracing_counts_on_neither_side():
    assert comparison([0.0, 0.4], tracing=100.0).time_ratio == 6.0


def test_losses_are_against_fully_trained_runs():
    figures = figures_of({"net": {1: comparison([0.9]), 2: comparison([0.4, -0.7], as_accurate=0.4)}})
    assert figures["mean_loss"] == pytest.approx(-0.15)
    assert figures["worst_loss"] == pytest.approx(0.4)


def test_goals_that_no_run_per_case_reaches_are_counted():
    assert comparison([0.0, 0.0], as_accurate=-0.7).unmatched == 2
    assert comparison([0.0, 0.0], as_accurate=-0.5).unmatched == 0


def test_all_targets_are_among_the_figures(tmp_path):
    result = comparison([0.0])
    figures = figures_of(
        {name: dict.fromkeys(net.counts, result) for name, net in _networks(lambda: tmp_path).items()}
    )
    assert TARGETS.keys() <= {"expansion_difference", *figures}


@pytest.mark.parametrize("arguments", [[], ["--data", "/nowhere"], ["--network", "depthwise"]])
def test_is_skipped_without_data(arguments, monkeypatch, capsys):
    monkeypatch.delenv("MISTIFY_TEST_DATA", raising=False)
    assert main(arguments) == 77
    assert "--data DIR" in capsys.readouterr().out
