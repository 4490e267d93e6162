"""Mistakes in plug-ins that can be found without importing them."""

import shutil
import sys
from pathlib import Path

import pytest

from mistify.config.data.loss import LOSSES
from mistify.config.data.metric import METRICS
from mistify.config.reading import parse_batch
from mistify.errors import MistifyError
from mistify.plugins import UnusablePlugInError, check_plug_in, plug_ins
from tests.support.plug_ins import installed

MODULE = "raise ImportError\nclass There: pass\nalso = 1\nfrom json import loads\n"
POINTS = {
    "fine": "plugged:There",
    "value": "plugged:also.real",
    "imported": "plugged:loads",
    "nested": "packaged.inner.deep:Deep",
    "absent": "plugged:Absent",
    "gone": "no_such_module:There",
    "gone_inside": "packaged.no_such:Deep",
    "wrong": "wrong:There",
    "starred": "starred:dumps",
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    installed(tmp_path, "plugged", MODULE, POINTS, METRICS)
    (tmp_path / "wrong.py").write_text("class There(:\n")
    (tmp_path / "starred.py").write_text("from json import *\n")
    (tmp_path / "packaged" / "inner").mkdir(parents=True)
    (tmp_path / "packaged" / "__init__.py").write_text("raise ImportError\n")
    (tmp_path / "packaged" / "inner" / "__init__.py").write_text("")
    (tmp_path / "packaged" / "inner" / "deep.py").write_text("class Deep: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("site")
def test_a_valid_plug_in_passes_without_being_imported() -> None:
    for name in ("fine", "value", "imported", "nested", "starred"):
        check_plug_in(plug_ins(METRICS)[name])
    assert not {"plugged", "packaged", "starred"} & sys.modules.keys()


def test_plug_ins_installed_or_removed_at_run_time_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = "mistify.tests"
    assert plug_ins(group) == {}
    monkeypatch.syspath_prepend(tmp_path)
    installed(tmp_path, "one", "", {"first": "one:first"}, group)
    assert list(plug_ins(group)) == ["first"]
    installed(tmp_path, "two", "", {"second": "two:second"}, group)
    assert list(plug_ins(group)) == ["first", "second"]
    shutil.rmtree(tmp_path / "one-0.1.0.dist-info")
    assert list(plug_ins(group)) == ["second"]


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("absent", "plugged:Absent: plugged has no Absent"),
        ("gone", "there is no module no_such_module"),
        ("gone_inside", "there is no module packaged.no_such"),
        ("wrong", "wrong:There: SyntaxError"),
    ],
)
def test_an_unusable_plug_in_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(UnusablePlugInError, match=reason):
        check_plug_in(plug_ins(METRICS)[name])


def config(**data: object) -> str:
    dataset = str({"train": "a.npz", "test": "b.npz", **data}).replace("'", '"')
    return f'{{"id": "a", "model": "m", "dataset": {dataset}, "adaptation_goal": {{"FLOP": "0.5x"}}}}'


def test_a_config_that_names_a_broken_metric_or_loss_is_refused(site: Path) -> None:
    installed(site / "more", "mislaid", "", {"lost": "mislaid:Lost", "kept": "plugged:There"}, LOSSES)
    sys.path.insert(0, str(site / "more"))
    try:
        text = config(
            metric="absent",
            metrics={"y": "fine", "z": "gone"},
            losses={"u": "lost", "v": "kept", "w": "kpet"},
        )
        with pytest.raises(MistifyError) as caught:
            parse_batch(text)
        parse_batch(text, server_knows_more=True)
    finally:
        sys.path.remove(str(site / "more"))
    problems = {problem.place: problem for problem in caught.value.problems}
    assert {place: problem.value for place, problem in problems.items()} == {
        "[0].dataset.metric": '"absent"',
        "[0].dataset.metrics.z": '"gone"',
        "[0].dataset.losses.u": '"lost"',
        "[0].dataset.losses.w": '"kpet"',
    }
    assert problems["[0].dataset.metric"].fix.startswith("fix the plug-in absent: plugged:Absent")
    assert problems["[0].dataset.losses.w"].fix == 'did you mean "kept"?'


def test_a_loss_that_no_plug_in_defines_is_refused() -> None:
    with pytest.raises(MistifyError, match="install the plug-in that defines it"):
        parse_batch(config(losses={"y": "iou"}))
    with pytest.raises(MistifyError, match=r"losses.y: got 3; expected the name of a plug-in's loss"):
        parse_batch(config(losses={"y": 3}))
