"""Adaptations killed at many points, and apps that load the remaining files."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.mistify_client.pools import make_elastic_package
from tests.support import elastic_stores

#: The shipped network: fast, and so inaccurate that the pool also contains slower subnets.
WORST = ("stem.tflite", *(f"block-{number}-shrunk.tflite" for number in range(1, 5)), "head.tflite")

#: Adapts a package repeatedly, killed at a different file operation each time, and prints a line of JSON
#: for each run. An audit hook counts the file operations of the process, which is killed at every write
#: and at every tenth read. One app runs all the time, and another one is started after each kill.
KILLED = """
import json, os, signal, sys, threading
from pathlib import Path
import numpy as np
from mistify.parsing.quantities import parse_time
from mistify_client import load
from tests.mistify_client.chains import load_chain
from mistify_client.subnets.search_session import adapt

root = Path(sys.argv[1])
package, data, state = root / "package", root / "mine.npz", root / "package.state"
image = np.load(data)["x"][:2]


def adapted(latency):
    return adapt(package, data, parse_time(latency), seconds=1e-3)


def kind_of(event, arguments):
    if not arguments or not str(arguments[0]).startswith(str(root)):
        return None
    if event in ("os.rename", "os.mkdir", "os.remove"):
        return "writes"
    if event == "open":  # of the directory: to lock it, or to wait until what was written is on the disk
        writes = arguments[2] & (os.O_WRONLY | os.O_RDWR) or Path(arguments[0]) == state
        return "writes" if writes else "reads"
    return None


def killed_at(point):
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    seen = {"writes": 0, "reads": 0}

    def kill(event, arguments):
        kind = kind_of(event, arguments)
        if kind is not None:
            seen[kind] += 1
            if (kind, seen[kind]) == point:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill)
    adapted("0.9x")
    os._exit(0)


def runs(model):
    ids = [option.id for option in model.options]
    return [ids.index(model.wanted), [option.blocks for option in model.options]]


def is_right(model):
    running, scores = model.running, model(image)
    while running != model.running:  # which was loaded in between
        running, scores = model.running, model(image)
    files = next(option.blocks for option in model.options if option.id == running)
    return bool(np.array_equal(scores, load_chain(package, files, 1)({"image": image})["scores"]))


for kind, step, measures in (("writes", 1, False), ("writes", 1, True), ("reads", 10, True)):
    number, status = 1, signal.SIGKILL
    while status:
        adapted("1x")
        if measures:
            next(state.glob("subnets/latency-*")).unlink()
        running = load(package)
        running.switch(running.options[0].id)
        old = runs(running)
        status = killed_at((kind, number))
        fresh = load(package)
        running(image)
        for thread in threading.enumerate():
            if thread.name == "mistify-version":
                thread.join()
        line = {"point": [kind, number], "status": status, "old": old, "fresh": runs(fresh)}
        line |= {"running": runs(running), "right": is_right(fresh) and is_right(running)}
        line |= {"default": fresh._loaded.options.default}
        result = adapted("0.9x")
        best = [result.pool.entries.index(result.chosen), [entry.files for entry in result.pool.entries]]
        print(json.dumps(line | {"again": runs(load(package)), "new": best}))
        number += step
"""


@pytest.mark.slow
def test_after_sigkill_at_any_point_the_package_runs_as_before_or_as_adapted(tmp_path):
    """So do running apps, and a chosen option only applies to the pool that it was chosen from."""
    make_elastic_package(tmp_path / "package", WORST)
    np.savez(tmp_path / "mine.npz", x=elastic_stores.digits()[0][1000:1050])
    before = {path.name: path.read_bytes() for path in (tmp_path / "package").iterdir()}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    kills = [json.loads(line) for line in done.stdout.splitlines()]
    assert [kill["status"] for kill in kills].count(0) == 3  # all runs completed
    assert len(kills) > 15
    for kill in kills:
        assert kill["status"] in (0, signal.SIGKILL), kill
        assert kill["right"], kill
        assert kill["fresh"] == kill["running"], kill
        assert kill["again"] == kill["new"], kill
        wanted, _ = kill["fresh"]
        assert kill["fresh"] == kill["old"] or wanted == kill["default"] > 0, kill
    assert len({json.dumps(kill["fresh"] == kill["old"]) for kill in kills if kill["status"]}) == 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "package").iterdir()} == before
