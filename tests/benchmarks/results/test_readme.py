"""The README's table is made from the most recent record of the default config."""

from benchmarks.harness.records import read_records
from benchmarks.porting.default_config import figures_of, goals_of
from benchmarks.results.readme import README, with_table

COSTS = {"flops": 780e3, "params": 70e3, "memory_bytes": 323e3}
REPORT = {
    "seconds": 120.0,
    "source": {
        **COSTS, "measured_latency_ms": {"1": 0.018}, "accuracy": 0.98, "tuned_accuracy": 0.99
    },
    "goals": [
        {"id": name, "met": met, "achieved": {**COSTS, "measured_latency_ms": 0.01, "accuracy": accuracy}}
        for name, met, accuracy in (("half", True, 0.97), ("tenth", False, 0.995))
    ],
}  # fmt: skip


def test_the_table_in_the_repository_matches_the_records():
    text = README.read_text()
    assert text == with_table(text, read_records()), "run python -m benchmarks.results"


def test_numbers_are_those_of_the_report():
    figures = figures_of(REPORT)
    assert goals_of(figures) == ["half", "tenth"]
    assert (figures["goals_missed"], round(figures["most_lost"], 6)) == (1, 2.0)
    assert (figures["source_accuracy"], figures["tuned_accuracy"], figures["half_accuracy"]) == (98, 99, 97)
    assert figures["half_latency_us"] == 10
