"""Stored inspections: persistent, bounded, and removed together with their files."""

import os
from pathlib import Path

import pytest

from mistify_server.store.inspections import KeptInspections
from mistify_server.tasks.results import Inspection

INSPECTION = Inspection(costs={"flops": 2.0}, floor={"flops": 1.0}, inputs=("image",))


@pytest.fixture
def kept(tmp_path: Path) -> KeptInspections:
    return KeptInspections(tmp_path / "inspections", most=2)


def test_inspections_survive_a_restart(kept: KeptInspections, tmp_path: Path) -> None:
    assert kept.get("a") is None
    kept.keep("a", INSPECTION, [])
    assert KeptInspections(tmp_path / "inspections").get("a") == INSPECTION


def test_the_least_recently_used_inspection_is_removed_first(kept: KeptInspections, tmp_path: Path) -> None:
    for age, key in enumerate(("a", "b")):
        kept.keep(key, INSPECTION, [])
        os.utime(tmp_path / "inspections" / f"{key}.json", (age, age))
    assert kept.get("a") == INSPECTION
    kept.keep("c", INSPECTION, [])
    assert [kept.get(key) is None for key in "abc"] == [False, True, False]


def test_an_unreadable_inspection_is_made_again(kept: KeptInspections, tmp_path: Path) -> None:
    kept.keep("a", INSPECTION, [])
    (tmp_path / "inspections" / "a.json").write_text('{"sources": ')
    assert kept.get("a") is None
    kept.keep("a", INSPECTION, [])
    assert kept.get("a") == INSPECTION


def test_an_inspection_is_removed_with_any_of_its_files(kept: KeptInspections, tmp_path: Path) -> None:
    model, data = tmp_path / "model.keras", tmp_path / "data"
    model.touch()
    data.mkdir()
    kept.keep("both", INSPECTION, [str(model), str(data)])
    kept.keep("built in", INSPECTION, [])
    assert kept.remove_unneeded() == 0
    data.rmdir()
    assert kept.remove_unneeded() > 0
    assert kept.get("both") is None
    assert kept.get("built in") == INSPECTION
