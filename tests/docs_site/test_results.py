"""The page of limits lists the targets that benchmarks miss."""

from docs_site.results import MARK, with_missed_targets
from tests.support.paths import REPOSITORY


def test_the_page_of_limits_gets_the_targets_that_are_missed() -> None:
    page = (REPOSITORY / "docs" / "limits.md").read_text()
    assert MARK in page
    listed = with_missed_targets(page)
    assert MARK not in listed
    assert "| elastic.blocks | stitched and whole network, int8: difference in output steps |" in listed


def test_other_pages_stay_as_they_are() -> None:
    assert with_missed_targets("# A page\n") == "# A page\n"
