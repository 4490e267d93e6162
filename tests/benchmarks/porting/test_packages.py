"""The two ways of packaging that `packages` compares."""

import pytest

from benchmarks.porting import packages
from benchmarks.porting.packages import GOALS, SOURCES, TARGETS, Packaged, Spent, figures_of
from mistify_server.worker.packaging.conversion import converter


def test_later_packages_count_by_their_median_and_the_first_ones_as_they_are():
    written = [Spent(1.0, 0.3), Spent(3.0, 0.3), Spent(0.1, 0.2), Spent(0.2, 0.3), Spent(0.6, 0.4)]
    converted = [Spent(1.0, 0.3)] * 5
    figures = figures_of(Packaged(written, converted, [0.5, 0.5, 0.1, 0.3, 0.2]))
    assert (figures["seconds"], figures["converted_seconds"], figures["times"]) == (0.2, 1.0, 5.0)
    assert figures["goals_16"] == pytest.approx(4.0 + (GOALS - 2) * 0.2)
    assert figures["converted_goals_16"] == 16.0
    assert (figures["litert_seconds"], figures["loading_seconds"]) == (0.3, 0.2)


def test_every_target_has_a_figure():
    figures = figures_of(Packaged([Spent(1.0, 0.0)] * 3, [Spent(1.0, 0.0)] * 3, [1.0] * 3))
    assert {f"{name}_{figure}" for name in SOURCES for figure in figures} >= TARGETS.keys()


@pytest.mark.slow
def test_only_one_side_converts_all_of_its_networks(monkeypatch):
    counted = []
    convert = converter.convert_saved

    def counting(*arguments, **options):
        counted.append(packages.ConversionTemplates.written.__name__)
        return convert(*arguments, **options)

    monkeypatch.setattr(converter, "convert_saved", counting)
    packages.packaged(SOURCES["digits"], 4)
    assert counted.count("<lambda>") == 4
    assert counted.count("written") < 4
