"""Daemons that are killed while they offer or cut slices, and what apps make of what is left."""

import json
import subprocess
import sys

from tests.mistify_client.ladders import make_serving_package

#: Offers slices and cuts one again and again, killed each time when it comes to another file, and prints a
#: line of JSON on each. An app runs all the time, and another one is started when the process is dead.
KILLED = """
import json, shutil, signal, sys, threading
from pathlib import Path
import numpy as np
from mistify_client import load
from mistify_client.monitor.slices import BackgroundSlices
from mistify_client.monitor.state.journal import Journal
from mistify_client.runtime.options import options_of
from mistify_client.runtime.versions import open_current
from mistify_client.slicing.offering import offer_slices
from tests.mistify_client.ladders import answers
from tests.support.file_operations import ended_at
from tests.support.factories import images

root = Path(sys.argv[1])
package, state = root / "package", root / "package.state"
pictures = images(2)
right = {"branch-0": load(package)(pictures), "slice-0.5": answers(package, 0.5, pictures)}


def cut():
    slices = BackgroundSlices(package, Journal(root.with_name("log"), None), seconds=1e-4)
    slices._make("slice-0.5")


def made():
    offer_slices(package, 1e-4)
    cut()


def follow(model):
    model(pictures)
    for thread in threading.enumerate():
        if thread.name == "mistify-version":
            thread.join()
    return model


point, status = 1, signal.SIGKILL
while status:
    shutil.rmtree(state / "slices", ignore_errors=True)
    running = load(package)
    status = ended_at(point, root, made)
    fresh = follow(load(package))
    offered = "slice-0.5" in [option.id for option in fresh.options]
    if offered:
        fresh.switch("slice-0.5")
        fresh = load(package)
    same = [option.id for option in follow(running).options] == [option.id for option in fresh.options]
    good = all(np.array_equal(one(pictures), right[one.running]) for one in (fresh, running))
    line = {"status": status, "offered": offered, "same": same, "right": good, "runs": fresh.running}
    made()
    load(package).switch("slice-0.5")
    again = load(package)
    line["again"] = again.running if np.array_equal(again(pictures), right["slice-0.5"]) else None
    print(json.dumps(line | {"files": len(list((state / "slices" / "cut").iterdir()))}))
    point += 1
"""


def test_sigkill_at_any_point_leaves_the_own_network_or_complete_slices(tmp_path):
    package = make_serving_package(tmp_path / "package")
    before = {path.name: path.read_bytes() for path in package.iterdir()}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert [kill["status"] for kill in kills].count(0) == 1
    assert len(kills) > 10
    for kill in kills:
        assert kill["right"], kill
        assert kill["same"], kill
        assert kill["again"] == "slice-0.5", kill
        assert kill["files"] == 1, kill
    assert {kill["offered"] for kill in kills if kill["status"]} == {False, True}
    assert {kill["runs"] for kill in kills if kill["status"]} == {"branch-0"}  # a slice is written last
    assert kills[-1]["runs"] == "slice-0.5"
    assert {path.name: path.read_bytes() for path in package.iterdir()} == before
