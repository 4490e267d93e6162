"""Links of the repository lead to the same files on the site."""

import pytest

from docs_site.links import relinked


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("config.md", "models-and-data.md#data", "models-and-data.md#data"),
        ("config.md", "../benchmarks/RESULTS.md#data_sheets", "results.md#data_sheets"),
        ("config.md", "../configs/fleet.json", "configs/fleet.json"),
        ("metrics.md", "examples/traffic", "examples/traffic.md"),
        ("tutorials/operator.md", "../server.md", "../server.md"),
        ("tutorials/operator.md", "../../CONTRIBUTING.md", "../contributing.md"),
        ("contributing.md", "docs/metrics.md#losses-of-outputs", "metrics.md#losses-of-outputs"),
        ("results.md", "pictures/goal_tree.png", "results/goal_tree.png"),
        ("recipes.md", "recipes/package.py", "recipes/package.py"),
    ],
)
def test_a_link_leads_to_the_file_on_the_site(page: str, link: str, expected: str) -> None:
    assert relinked(f"see [it]({link}).", page) == f"see [it]({expected})."


@pytest.mark.parametrize("link", ["https://keras.io/a.md", "#goals", "../Makefile"])
def test_external_links_are_not_changed(link: str) -> None:
    assert relinked(f"[it]({link})", "config.md") == f"[it]({link})"
