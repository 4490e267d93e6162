"""The page of limits lists the targets missed by benchmarks."""

from docs_site.results import MARK, with_missed_targets
from tests.support.paths import REPOSITORY


def test_the_page_of_limits_lists_the_missed_targets() -> None:
    page = (REPOSITORY / "docs" / "limits.md").read_text()
    assert MARK in page
    listed = with_missed_targets(page)
    assert MARK not in listed
    assert "| elastic.blocks | stitched and whole network, int8: difference in output steps |" in listed


def test_other_pages_are_not_changed() -> None:
    assert with_missed_targets("# A page\n") == "# A page\n"
