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

## collective

| goals | by | steps | accuracy | seconds | `morphnet`, times | Torch-Pruning, times |
|---:|---|---:|---|---:|---:|---:|
| 4 | path | 2,400 | 74.0, 74.1 % | 120 | 2.0 | 1.5 |
| 128 | nested networks | 2,400 | 73.7, 73.9 % | 1,200 | 16 | 17.5 |

| another | table |
|---|---|
| 1 | 2 |
"""


def test_the_picture_in_the_repository_is_that_of_the_results():
    assert PICTURE.read_text() == picture(RESULTS.read_text()), "run python -m benchmarks.results_picture"


def test_a_section_is_read_up_to_the_end_of_its_first_table():
    assert [row[0] for row in table("collective", TEXT)] == ["4", "128"]


def test_goals_out_of_reach_are_left_out():
    assert tradeoffs(TEXT)["latency"] == [(85.1, 80.3)]
    assert tradeoffs(TEXT)["memory, any precision"] == [(89.9, 81.2), (4.3, 46.2)]


def test_times_one_by_one_are_multiples_of_those_together():
    assert times(TEXT) == {
        "together": [(4, 2), (128, 20)],
        "one by one, Mistify": [(4, 4), (128, 320)],
        "one by one, Torch-Pruning": [(4, 3), (128, 350)],
    }


def test_every_point_lies_within_its_panel():
    circles = [part for part in ElementTree.fromstring(PICTURE.read_text()) if part.get("r") == "3.5"]  # noqa: S314
    assert len(circles) == 30 + 3 * 4
    assert all(48 <= float(circle.get("cy")) <= 300 for circle in circles)
    assert all(60 <= x <= 400 or 510 <= x <= 850 for x in (float(circle.get("cx")) for circle in circles))
