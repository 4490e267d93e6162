"""Whatever the headlines of the results do not call met is listed among the limits."""

from docs_site.results import MARK, missed_targets
from tests.support.paths import REPOSITORY

RESULTS = """
# Results

## Headlines

| benchmark | headline figure | measured | target | | of |
|---|---|---:|---:|---|---|
| one | speed | 3 | 2 | met | today |
| | size | 5 | 4 | missed | today |
| two | a; b | 1; 2 | 1; 1 | met; missed | today |

## one

| | cut | 1 | 1 | missed | |
"""


def test_only_what_is_missed_is_listed_under_its_benchmark() -> None:
    assert missed_targets(RESULTS).splitlines()[2:] == [
        "| one | size | 5 | 4 | missed |",
        "| two | a; b | 1; 2 | 1; 1 | met; missed |",
    ]


def test_the_results_have_some_and_the_page_has_their_place() -> None:
    assert len(missed_targets((REPOSITORY / "benchmarks" / "RESULTS.md").read_text()).splitlines()) > 3
    assert MARK in (REPOSITORY / "docs" / "limits.md").read_text()
