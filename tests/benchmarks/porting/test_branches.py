"""What the largest branch loses, over the seeds."""

from benchmarks.harness.run import EXIT_SKIPPED
from benchmarks.porting.branches import figures_of, main


def test_the_largest_branch_is_compared_with_a_network_of_its_own() -> None:
    runs = [
        {"source": 82.0, "alone": 83.0, "largest": largest, "package_bytes": size}
        for largest, size in ((82.5, 100.0), (82.0, 300.0))
    ]
    figures = figures_of(runs)
    assert figures["largest_lost"] == 0.75
    assert figures["largest"] == 82.25
    assert figures["package_bytes"] == 200.0


def test_without_data_it_is_skipped() -> None:
    assert main(["--quick"]) == EXIT_SKIPPED
