"""The README's picture is drawn from the tables of RESULTS.md, and is up to date."""

from xml.etree import ElementTree

from benchmarks.results_picture import PICTURE, RESULTS, picture, table, times, tradeoffs

TEXT = """
## tradeoffs

Text.

| asked | multiply-adds | accuracy | memory | accuracy | latency | accuracy | chosen | accuracy |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| 0.9 | 0.898 | 81.1 % | 0.899 | 81.2 % | 0.851 | 80.3 % | 0.27 | 82.0 % |
| 0.05 | 0.050 | 60.0 % | 0.043 | 46.2 % | out of reach | | out of reach | |

## collective: ResNet-8

| goals | steps | per case | ratio | seconds | per case | ratio | mean loss | worst loss |
|---:|---:|---:|---:|---:|---:|---:|---:|---:|
| 1 | 1,600 | 1,462 | 0.9 | 113.3 | 95.1 | 0.8 | 0.50 | 0.50 |
| 32 | 1,668 | 5,300 | 3.2 | 257.8 | 1,734.3 | 2.8 | 0.24 | 2.23 |
| 16, on another machine | 1,628 | 3,660 | 2.2 | 151.3 | 385.2 | 2.5 | 0.26 | 1.55 |

| another | table |
|---|---|
| 1 | 2 |
"""


def test_the_picture_in_the_repository_is_that_of_the_results():
    assert PICTURE.read_text() == picture(RESULTS.read_text()), "run python -m benchmarks.results_picture"


def test_a_section_is_read_up_to_the_end_of_its_first_table():
    assert [row[0] for row in table("collective: ResNet-8", TEXT)] == ["1", "32", "16, on another machine"]


def test_goals_out_of_reach_and_other_machines_are_left_out():
    assert tradeoffs(TEXT)["latency"] == [(85.1, 80.3)]
    assert tradeoffs(TEXT)["memory, any precision"] == [(89.9, 81.2), (4.3, 46.2)]
    assert times(TEXT) == {"together": [(1, 113.3), (32, 257.8)], "one by one": [(1, 95.1), (32, 1734.3)]}


def test_every_point_lies_within_its_panel():
    circles = [part for part in ElementTree.fromstring(PICTURE.read_text()) if part.get("r") == "3.5"]  # noqa: S314
    assert len(circles) == 30 + 12
    assert all(48 <= float(circle.get("cy")) <= 300 for circle in circles)
    assert all(60 <= x <= 400 or 510 <= x <= 850 for x in (float(circle.get("cx")) for circle in circles))
