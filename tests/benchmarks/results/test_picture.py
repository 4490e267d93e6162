"""The README's picture is drawn from the records, and is up to date."""

from xml.etree import ElementTree

from benchmarks.harness.records import read_records
from benchmarks.results.picture import PICTURE, picture, times, tradeoffs


def test_the_picture_in_the_repository_matches_the_records():
    assert PICTURE.read_text() == picture(read_records()), "run python -m benchmarks.results"


def test_points_are_percent_of_the_cost_and_of_accuracy():
    figures = {
        "resnet8_memory_0": 0.899,
        "resnet8_memory_0_accuracy": 81.2,
        "resnet8_memory_1": 0.043,
        "resnet8_memory_1_accuracy": 46.2,
        "resnet8_goals_met": 2.0,
    }
    assert tradeoffs(figures)["memory, any precision"] == [(89.9, 81.2), (4.3, 46.2)]
    assert tradeoffs(figures)["latency"] == []


def test_times_of_separate_porting_are_multiples_of_collective_ones():
    figures = {}
    for goals, seconds in ((4, 120.0), (16, 240.0), (64, 600.0), (128, 1_200.0)):
        figures[f"resnet8_adapting_seconds_at_{goals}"] = seconds
        figures[f"resnet8_adapting_over_morphnet_at_{goals}"] = 2.0
        figures[f"resnet8_adapting_over_torch_pruning_at_{goals}"] = 1.5
    assert times(figures) == {
        "together": [(4, 2), (16, 4), (64, 10), (128, 20)],
        "one by one, Mistify": [(4, 4), (16, 8), (64, 20), (128, 40)],
        "one by one, Torch-Pruning": [(4, 3), (16, 6), (64, 15), (128, 30)],
    }


def test_every_point_is_within_its_panel():
    circles = [part for part in ElementTree.fromstring(PICTURE.read_text()) if part.get("r") == "3.5"]  # noqa: S314
    assert len(circles) == 30 + 3 * 4
    assert all(48 <= float(circle.get("cy")) <= 300 for circle in circles)
    assert all(60 <= x <= 400 or 510 <= x <= 850 for x in (float(circle.get("cx")) for circle in circles))
