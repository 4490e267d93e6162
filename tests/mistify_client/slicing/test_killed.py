"""Commands that end at many points, and what apps make of what is left."""

import json
import subprocess
import sys

import pytest

from mistify.package.verification import verify
from tests.mistify_client.ladders import make_serving_package
from tests.support.factories import make_package

#: What the scripts below share; their commands end at many points, killed or by a full disk.
POINTS = """
import json, sys, threading
from pathlib import Path
import numpy as np
from mistify.parsing.quantities import Quantity
from mistify_client import load
from mistify_client.slicing.customizing import SliceRequest, customize
from tests.support.file_operations import ended_at
from tests.support.factories import images

root, full = Path(sys.argv[1]), sys.argv[2] == "full"
package, state = root / "package", root / "package.state"
pictures = images(2)


def customized(task, **options):
    customize(package, SliceRequest(task, Quantity(1e3)), seconds=1e-4, **options)


def serves(model):
    task = model.manifest.task
    return None if task is None else list(task.properties)
"""

#: Installs a slice again and again, and prints a line of JSON on each. An app runs all the time, and another
#: one is started when the process has ended.
INSTALLED = """
answers = {}
for task in ("has,4", "exactly:2,odd"):
    customized(task)
    model = load(package)
    answers[str(serves(model))] = model(pictures)
point, status = 1, -1
while status:
    customized("has,4")
    (state / "slices" / "latency-1.json").unlink()
    running = load(package)
    status = ended_at(point, root, lambda: customized("exactly:2,odd"), full=full)
    left = (state / "slices" / "installing").exists()
    fresh = load(package)
    running(pictures)
    for thread in threading.enumerate():
        if thread.name == "mistify-version":
            thread.join()
    right = all(np.array_equal(one(pictures), answers[str(serves(one))]) for one in (fresh, running))
    line = {"status": status, "left": left, "right": right}
    line |= {"fresh": serves(fresh), "running": serves(running)}
    customized("exactly:2,odd")
    print(json.dumps(line | {"again": serves(load(package))}))
    point += 1
"""

#: The same for a package of the slice's own.
WRITTEN = """
point, status = 1, -1
while status:
    out = root / f"out-{point}"
    status = ended_at(point, root, lambda: customized("exactly:2,odd", out=out), full=full)
    left = (root / f".out-{point}.part").exists()
    there = serves(load(out)) if out.exists() else None
    if there is None:
        customized("exactly:2,odd", out=out)
    names = sorted(path.name for path in root.iterdir() if not path.name.startswith("out-"))
    print(json.dumps({"status": status, "left": left, "out": str(out), "there": there, "names": names}))
    point += 1
"""

#: The same for slices that are offered beside the network of a package.
OFFERED = """
import shutil
from mistify_client.runtime.options import options_of
from mistify_client.runtime.versions import open_current
from mistify_client.slicing.offering import offer_slices


def offered():
    offer_slices(package, seconds=1e-4)


def options():
    return len(options_of(open_current(package), state).ids)


answer = load(package)(pictures)
point, status = 1, -1
while status:
    shutil.rmtree(state, ignore_errors=True)
    status = ended_at(point, root, offered, full=full)
    left = sorted(path.name for path in state.glob("slices/*") if path.is_dir())
    right = np.array_equal(load(package)(pictures), answer)
    line = {"status": status, "left": left, "right": right, "options": options()}
    offered()
    print(json.dumps(line | {"again": options()}))
    point += 1
"""

OLD, NEW = ["has", "4"], ["exactly:2", "odd"]


def lines(program, directory, end):
    done = subprocess.run(
        [sys.executable, "-c", POINTS + program, str(directory), end],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["status"] for one in found].count(0) == 1
    assert len(found) > 4
    assert any(one["left"] for one in found) == (end == "SIGKILL")
    return found


@pytest.mark.parametrize("end", ["SIGKILL", "full"])
def test_at_any_point_the_old_slice_or_the_new_one_is_left(tmp_path, end):
    package = make_package(tmp_path / "package")
    before = {path.name: path.read_bytes() for path in package.iterdir()}
    ends = lines(INSTALLED, tmp_path, end)
    for one in ends:
        assert one["right"], one
        assert one["fresh"] in (OLD, NEW), one
        assert one["running"] in (OLD, one["fresh"]), one
        assert one["again"] == NEW, one
    assert tuple(OLD) in {tuple(one["fresh"]) for one in ends if one["status"]}
    assert {path.name: path.read_bytes() for path in package.iterdir()} == before


@pytest.mark.parametrize("end", ["SIGKILL", "full"])
def test_at_any_point_a_complete_package_of_its_own_is_left_or_none(tmp_path, end):
    make_package(tmp_path / "package")
    for one in lines(WRITTEN, tmp_path, end):
        assert one["there"] in (None, NEW), one
        assert one["names"] == ["package", "package.state"], one
        verify(tmp_path / one["out"])


@pytest.mark.parametrize("end", ["SIGKILL", "full"])
def test_at_any_point_all_slices_are_offered_or_none(tmp_path, end):
    make_serving_package(tmp_path / "package")
    for one in lines(OFFERED, tmp_path, end):
        assert one["right"], one
        assert one["again"] > 1, one
        assert one["options"] in (1, one["again"]), one
