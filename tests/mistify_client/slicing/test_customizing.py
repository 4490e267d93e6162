"""Slices that a device cuts from a real package: what they compute, what they keep, and what is refused."""

import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.package.factory import ASSEMBLER, FACTORY, SUPERNET, FactoryStore
from mistify.package.manifest import NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.records import PackagedFile
from mistify.package.verification import verify
from mistify.parsing.quantities import Quantity
from mistify_client import load
from mistify_client.assembly.ladder import SLICES
from mistify_client.files import held_alone
from mistify_client.runtime.versions import current, install, roll_back, state_directory
from mistify_client.slicing.customizing import SliceRequest, customize
from tests.support.factories import ASKED, QUALITY, UNSEEN, expected, images, make_package

TASK = "exactly:2,odd"


@pytest.fixture
def package(tmp_path):
    return make_package(tmp_path / "package")


@pytest.fixture
def cut(package):
    """Cuts a slice, measured as briefly as can be."""

    def customized(task=TASK, *, out=None, **request):
        return customize(package, SliceRequest(task, **request), out=out, seconds=1e-3)

    return customized


def replace_file(package, name, content):
    """Put another file in the place of one of a package, with its digest in the manifest."""
    (package / name).write_bytes(content)
    manifest = Manifest.load(package)
    files = {**manifest.files, name: PackagedFile.of(content)}
    manifest.model_copy(update={"files": files}).save(package)


def problem_of(error):
    (problem,) = error.value.problems
    return problem


@pytest.mark.parametrize(("task", "limit"), ASKED)
def test_a_slice_answers_as_the_network_with_gates_does(package, cut, task, limit):
    result = cut(task, limit=limit)
    answered = load(package)(images(16))
    reference = expected(task, result.made.candidate.limit) if limit == QUALITY.limits[0] else None
    if reference is None:  # the best limit below it is another one
        assert result.made.candidate.limit == pytest.approx(0.5, rel=0.1)
        return
    assert np.abs(answered - reference).max() <= 1e-5 * np.abs(reference).max()


def test_an_int8_slice_answers_nearly_as_the_network_with_gates_does(tmp_path):
    package = make_package(tmp_path / "package", "factory_int8")
    reference = expected(UNSEEN, 0.1)
    customize(package, SliceRequest(UNSEEN, limit=0.1), seconds=1e-3)
    answered = load(package)(images(16))
    assert np.abs(answered - reference).max() <= 0.1 * np.ptp(reference) + 0.02 * np.abs(reference).max()


def test_the_limit_with_the_best_expected_quality_is_taken_not_the_largest(cut):
    taken = cut().made.candidate
    assert taken.limit == pytest.approx(0.5, rel=0.1)
    assert taken.quality == pytest.approx(QUALITY.expected(taken.limit))
    assert cut(limit=0.2).made.candidate.limit == pytest.approx(0.2, rel=0.1)


def test_every_slice_keeps_its_latency_and_its_memory(cut):
    whole = cut(latency=Quantity(1e3)).made
    for share in (0.9, 0.6):
        result = cut(memory=Quantity(share * whole.memory_bytes))
        assert result.made.memory_bytes <= share * whole.memory_bytes
        assert result.limits.memory_bytes == share * whole.memory_bytes
    result = cut(latency=Quantity(5.0, relative=True))
    assert result.made.latency.median_ms <= result.limits.latency_ms


def test_latencies_of_slices_are_measured_once(package):
    lines = []
    for _ in range(2):
        customize(package, SliceRequest(TASK, Quantity(1e3)), seconds=1e-3, on_progress=lines.append)
    assert lines == ["measuring 10 slices"]
    table = json.loads((state_directory(package) / SLICES / "latency-1.json").read_text())
    assert len(table["widths"]) == len(table["latencies_ms"]) == 10
    assert table["widths"][0] == [24, 16]
    customize(package, SliceRequest(TASK, Quantity(1e3)), threads=2, seconds=1e-3, on_progress=lines.append)
    assert lines == ["measuring 10 slices"] * 2


@pytest.mark.parametrize("content", ["{", '{"format_version": 1}', "[]"])
def test_a_table_that_cannot_be_read_is_measured_again(package, cut, content):
    cut(latency=Quantity(1e3))
    table = state_directory(package) / SLICES / "latency-1.json"
    table.write_text(content)
    cut(latency=Quantity(1e3))
    assert len(json.loads(table.read_text())["widths"]) == 10


def test_the_slice_is_installed_as_a_version_that_describes_it(package, cut):
    before = {path.name: path.read_bytes() for path in package.iterdir()}
    result = cut(latency=Quantity(1e3))
    assert current(package) == result.directory != package
    manifest = verify(result.directory)
    assert sorted(manifest.files) == [NETWORK]
    assert manifest.task.properties == ("exactly:2", "odd")
    assert manifest.metric is Metric.BALANCED_ACCURACY
    assert (manifest.accuracy, manifest.accuracy_examples) == (result.made.candidate.quality, 0)
    assert manifest.latency == result.made.latency
    assert manifest.budget == {"latency_ms@host": 1e3}
    assert manifest.achieved["memory_bytes"] == result.made.memory_bytes
    assert manifest.labels == {"answer": ("no", "yes")}
    assert {path.name: path.read_bytes() for path in package.iterdir()} == before
    assert list((state_directory(package) / SLICES).iterdir()) == [
        state_directory(package) / SLICES / "latency-1.json"
    ]


def test_another_slice_is_cut_from_the_shipped_network_and_can_be_rolled_back(package, cut):
    first = cut("has,4").directory
    second = cut().directory
    assert current(package) == second
    roll_back(package)
    assert current(package) == first
    roll_back(package)
    assert current(package) == package


def test_slices_are_cut_from_a_later_package_with_a_factory(package, cut, tmp_path):
    later = make_package(tmp_path / "later", "factory_int8")
    install(package, later)
    assert cut().directory != package
    assert Manifest.load(current(package)).quantization.value == "int8"


def test_a_model_that_runs_takes_the_slice_over(package, cut):
    model = load(package)
    before = model(images(1))
    cut()
    model(images(1))  # notices that there is a new version
    for thread in threading.enumerate():
        if thread.name == "mistify-version":
            thread.join()
    assert model.manifest.task.properties == ("exactly:2", "odd")
    assert not np.array_equal(model(images(1)), before)


def test_a_package_of_its_own_leaves_the_shipped_one_alone(package, cut, tmp_path):
    out = tmp_path / "two-odd"
    assert cut(out=out).directory == out
    assert current(package) == package
    assert verify(out).task.properties == ("exactly:2", "odd")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["package", "package.state", "two-odd"]
    assert load(out, task=TASK)(images(2)).shape == (2, 1)


def test_a_package_where_nothing_can_be_written_has_slices_elsewhere(package, cut, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    # Permissions do not bind the root user.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) == elsewhere)
    cut(out=elsewhere / "two-odd", latency=Quantity(1e3))
    assert verify(elsewhere / "two-odd").task.properties == ("exactly:2", "odd")
    assert sorted(path.name for path in elsewhere.iterdir()) == ["two-odd"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "package"]
    with pytest.raises(MistifyError, match=r"--out: got .*; expected a name in a directory that can be"):
        cut(out=tmp_path / "two-odd")


def test_an_existing_directory_is_not_written_to(package, cut, tmp_path):
    with pytest.raises(MistifyError) as error:
        cut(out=package)
    assert error.value.code is ErrorCode.INVALID_CONFIG
    assert problem_of(error).place == "--out"
    with pytest.raises(
        MistifyError, match=r"--out: got .*; expected a name in a directory that .*none is none"
    ):
        cut(out=tmp_path / "none" / "out")
    cut()
    for place in (package / "own", state_directory(package) / "slices" / ".." / "own"):
        with pytest.raises(MistifyError, match=r"--out: got .*; expected a directory outside .*package and"):
            cut(out=place)


def test_data_decide_between_slices(package, cut, tmp_path):
    pictures = 3 * images(60)
    answered = {}
    for limit in (0.34, 1.0):
        cut(UNSEEN, limit=limit)
        answered[limit] = (load(package)(pictures) > 0).astype(np.int64).ravel()
    assert (answered[0.34] != answered[1.0]).any()
    for limit, answers in answered.items():
        known = np.where(np.arange(60) > 0, answers, -1)
        np.savez(tmp_path / "mine.npz", x=pictures, y=known[:, None])
        result = cut(UNSEEN, data=tmp_path / "mine.npz")
        assert result.made.candidate.quality == 1.0, limit
        manifest = Manifest.load(result.directory)
        assert (manifest.accuracy, manifest.accuracy_examples) == (1.0, 60)
        assert manifest.note == ""


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": images(3)}, "an array \\[examples, ...\\]"),
        ({"x": images(3), "y": np.full((3, 1), -1)}, "none that is known"),
        ({"x": images(3)[:, :4], "y": np.ones((3, 1), np.int64)}, "8, 8, 1"),
        ({"x": images(3), "y": np.full((3, 1), 2)}, "0 to 1, or -1"),
        ({"x": images(3), "y": np.array([[0], [1], [2]], np.int8)}, "classes from 0 to 2"),
        ({"x": images(3), "y": np.array([[1], [1], [-1]])}, "the answer 1 alone; expected at least two"),
        ({"x": images(3), "y": np.array([[0.5], [1], [0]])}, "got fractions; expected numbers of answers"),
        ({"x": images(0), "y": np.zeros((0, 1))}, "image: got no example; expected at least one"),
    ],
)
def test_data_that_do_not_fit_are_refused(cut, package, tmp_path, arrays, message):
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(MistifyError, match=message) as error:
        cut(data=tmp_path / "mine.npz")
    assert error.value.code is ErrorCode.INVALID_DATASET
    assert current(package) == package


def test_a_task_that_was_never_trained_is_allowed_and_said(package, cut):
    result = cut(UNSEEN)
    assert 'never trained: "exactly:1, even"; nearest trained tasks: "exactly:1, 2"' in result.note
    assert "not measured" in Manifest.load(result.directory).note


@pytest.mark.parametrize(
    ("task", "place", "message"),
    [
        ("exactly:2,od", "--task[1]", '"od"; expected one of .*odd.*; did you mean "odd"'),
        ("exactly:2", "--task", 'expected a value of "which" as well: 1, 2, 3, 4, odd, even'),
        ("has,exactly:1,2", "--task", 'expected one value of "how many"'),
        ("two-od", "--task", 'did you mean "two-odd"'),
    ],
)
def test_tasks_that_cannot_be_asked_for_are_refused(cut, package, task, place, message):
    with pytest.raises(MistifyError, match=message) as error:
        cut(task)
    assert error.value.code is ErrorCode.INVALID_CONFIG
    assert problem_of(error).place == place
    assert not state_directory(package).exists()


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            {"latency": Quantity(1e-9)},
            "--latency: got 0.001ns; expected at least .*, which the smallest slice",
        ),
        (
            {"memory": Quantity(9.0)},
            "--memory: got 9B; expected at least .*KB, which the smallest slice for exactly",
        ),
        ({"memory": Quantity(0.01, relative=True)}, r"--memory: got 0.01x \(.*\); expected at least"),
        ({"limit": 0.01}, "--limit: got 0.01; expected a share from 0.1 to 1"),
        ({"limit": 2.0}, "--limit: got 2; expected a share from 0.1 to 1"),
    ],
)
def test_limits_out_of_reach_are_refused_with_figures(cut, package, request_, message):
    cut("has,4")
    before = current(package)
    with pytest.raises(MistifyError, match=message) as error:
        cut(**request_)
    assert error.value.code.exit_code == 2
    assert current(package) == before


def test_a_package_without_an_assembler_says_how_to_get_one(package, cut):
    manifest = Manifest.load(package)
    files = {name: file for name, file in manifest.files.items() if name == NETWORK}
    manifest.model_copy(update={"files": files}).save(package)
    with pytest.raises(MistifyError, match=r'has no assembler.*"inside": true') as error:
        cut()
    assert error.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("name", [SUPERNET, ASSEMBLER, FACTORY])
@pytest.mark.parametrize("damage", ["bytes", "missing"])
def test_damaged_files_are_found_before_anything_changes(package, cut, name, damage):
    if damage == "missing":
        (package / name).unlink()
    else:
        content = bytearray((package / name).read_bytes())
        content[len(content) // 2] ^= 1
        (package / name).write_bytes(content)
    with pytest.raises(MistifyError) as error:
        cut()
    assert error.value.code in (ErrorCode.CORRUPT_PACKAGE, ErrorCode.NOT_FOUND)
    assert name in str(error.value)
    assert current(package) == package


def test_the_assembler_of_another_package_is_found_by_its_digest(package, cut):
    content = (package / ASSEMBLER).read_bytes() + b"\0"
    replace_file(package, ASSEMBLER, content)
    with pytest.raises(MistifyError, match=ASSEMBLER) as error:
        cut()
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE


def test_two_processes_do_not_customize_at_once(package, cut):
    directory = state_directory(package) / SLICES
    directory.mkdir(parents=True)
    with (
        held_alone(directory, "test"),
        pytest.raises(MistifyError, match="already being customized") as error,
    ):
        cut()
    assert error.value.code is ErrorCode.CONFLICT


def test_a_version_that_was_installed_meanwhile_stays(package, tmp_path):
    other = make_package(tmp_path / "other")

    def install_another(line):
        install(package, other)

    with pytest.raises(MistifyError, match="another version") as error:
        customize(package, SliceRequest(TASK, Quantity(1e3)), seconds=1e-3, on_progress=install_another)
    assert error.value.code is ErrorCode.CONFLICT
    assert sorted(Manifest.load(current(package)).files) == sorted(Manifest.load(other).files)


def test_what_a_killed_process_left_is_removed(package, cut):
    left = state_directory(package) / SLICES / "installing"
    left.mkdir(parents=True)
    (left / NETWORK).write_bytes(b"half")
    cut()
    assert not left.exists()


def test_the_description_is_kept_as_json(package):
    store = FactoryStore.of(Package.open(package))
    assert FactoryStore.model_validate_json(store.as_json()) == store


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"groups": ()}, "groups"),
        ({"quality": {"tasks": [], "limits": [], "scores": []}}, "no quality was measured"),
        ({"format_version": 2}, "newer Mistify"),
    ],
)
def test_descriptions_that_cannot_be_used_are_refused(package, cut, update, message):
    content = json.dumps(json.loads((package / FACTORY).read_bytes()) | update).encode()
    replace_file(package, FACTORY, content)
    with pytest.raises(MistifyError, match=message) as error:
        cut()
    assert error.value.code in (ErrorCode.CORRUPT_PACKAGE, ErrorCode.STORE_VERSION)
