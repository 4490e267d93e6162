"""Commands that are killed at many points, and what apps make of what is left."""

import json
import subprocess
import sys

from tests.support.factories import make_package

#: Cuts a slice again and again, killed each time when it comes to another file, and prints a line of JSON on
#: each. An audit hook counts what the process does with files: all that writes is a point to be killed at.
#: An app runs all the time, and another one is started when the process is dead.
KILLED = """
import json, os, signal, sys, threading
from pathlib import Path
import numpy as np
from mistify.parsing.quantities import Quantity
from mistify_client import load
from mistify_client.slicing.customizing import SliceRequest, customize
from tests.support.factories import images

root = Path(sys.argv[1])
package, state = root / "package", root / "package.state"
pictures = images(2)


def customized(task):
    customize(package, SliceRequest(task, Quantity(1e3)), seconds=1e-4)


def serves(model):
    task = model.manifest.task
    return None if task is None else list(task.properties)


def killed_at(point):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    seen = 0

    def kill(event, arguments):
        nonlocal seen
        if not arguments or not str(arguments[0]).startswith(str(root)):
            return
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in ("os.rename", "os.mkdir", "os.remove", "os.symlink", "os.rmdir"):
            seen += 1
            if seen == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill)
    customized("exactly:2,odd")
    os._exit(0)


answers = {}
for task in ("has,4", "exactly:2,odd"):
    customized(task)
    model = load(package)
    answers[str(serves(model))] = model(pictures)
point, status = 1, signal.SIGKILL
while status:
    customized("has,4")
    (state / "slices" / "latency-1.json").unlink()
    running = load(package)
    status = killed_at(point)
    fresh = load(package)
    running(pictures)
    for thread in threading.enumerate():
        if thread.name == "mistify-version":
            thread.join()
    right = all(np.array_equal(one(pictures), answers[str(serves(one))]) for one in (fresh, running))
    line = {"status": status, "right": right, "fresh": serves(fresh), "running": serves(running)}
    customized("exactly:2,odd")
    print(json.dumps(line | {"again": serves(load(package))}))
    point += 1
"""

OLD, NEW = ["has", "4"], ["exactly:2", "odd"]


def test_sigkill_at_any_point_leaves_the_old_slice_or_the_new_one(tmp_path):
    package = make_package(tmp_path / "package")
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
        assert kill["fresh"] in (OLD, NEW), kill
        assert kill["running"] in (OLD, kill["fresh"]), kill
        assert kill["again"] == NEW, kill
    assert {tuple(kill["fresh"]) for kill in kills if kill["status"]} == {tuple(OLD), tuple(NEW)}
    assert {path.name: path.read_bytes() for path in package.iterdir()} == before
