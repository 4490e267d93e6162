"""The loss of branches compared with separate networks, over the seeds."""

from benchmarks.harness.run import EXIT_SKIPPED
from benchmarks.porting.branches import MULTIPLES, SHARE, figures_of, main


def test_branches_are_compared_with_separate_networks() -> None:
    alone = {"largest_alone": 83.0, "smallest_alone": 73.0, "separate_bytes": 400.0}
    runs = [
        {**alone, "largest": largest, "smallest": 70.0, "package_bytes": size}
        for largest, size in ((82.5, 100.0), (82.0, 300.0))
    ]
    figures = figures_of(runs)
    assert figures["largest_lost"] == 0.75
    assert figures["smallest_lost"] == 3.0
    assert figures["largest"] == 82.25
    assert figures["bytes_over_separate"] == 0.5


def test_all_networks_are_cut() -> None:
    """A branch at the source's costs would be the source itself on both sides."""
    assert SHARE * max(MULTIPLES.values()) < 1


def test_the_benchmark_is_skipped_without_data() -> None:
    assert main(["--quick"]) == EXIT_SKIPPED
