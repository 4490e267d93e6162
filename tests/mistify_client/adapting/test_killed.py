"""Installations of adapted networks that are killed at many points, and what apps make of what is left."""

import json
import subprocess
import sys

from tests.support.adaptable import make_package

#: Installs an adapted network again and again, killed each time when it comes to another file, and prints a
#: line of JSON on each. An app runs all the time, and another one is started when the process is dead.
KILLED = """
import json, signal, sys, threading
from pathlib import Path
import numpy as np
from mistify.adaptation.statistics import Statistics
from mistify_client import load
from mistify_client.adapting.installing import adaptable_version, install_adapted, remove_adaptation
from tests.support.adaptable import digits
from tests.support.file_operations import ended_at

root = Path(sys.argv[1])
package = root / "package"
pictures = digits()[0][:4]
numbers = adaptable_version(package)
shipped = numbers.store.read_statistics(numbers.base)


def installed(factor):
    statistics = Statistics(shipped["mean"], shipped["variance"] * np.float32(factor))
    install_adapted(package, adaptable_version(package), statistics)


def kind(model):
    given = model(pictures)
    return next((name for name, answer in answers.items() if np.array_equal(answer, given)), None)


answers = {"shipped": load(package)(pictures)}
for name, factor in (("old", 2), ("new", 4)):
    installed(factor)
    answers[name] = load(package)(pictures)
first = sys.argv[2]
point, status = 1, signal.SIGKILL
while status:
    remove_adaptation(package)
    if first == "old":
        installed(2)
    running = load(package)
    status = ended_at(point, root, lambda: installed(4))
    fresh = load(package)
    running(pictures)
    for thread in threading.enumerate():
        if thread.name == "mistify-version":
            thread.join()
    line = {"status": status, "fresh": kind(fresh), "running": kind(running)}
    installed(4)
    again = kind(load(package))
    remove_adaptation(package)
    print(json.dumps(line | {"again": again, "restored": kind(load(package))}))
    point += 1
"""


def kills(tmp_path, first):
    package = make_package(tmp_path / "package")
    before = {path.name: path.read_bytes() for path in package.iterdir()}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), first], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in package.iterdir()} == before
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found, first):
    assert [kill["status"] for kill in found].count(0) == 1
    assert len(found) > 10
    for kill in found:
        assert kill["fresh"] in (first, "new"), kill
        assert kill["running"] in (first, kill["fresh"]), kill
        assert (kill["again"], kill["restored"]) == ("new", "shipped"), kill
    assert {kill["fresh"] for kill in found if kill["status"]} == {first, "new"}


def test_sigkill_at_any_point_leaves_the_shipped_network_or_the_adapted_one(tmp_path):
    check(kills(tmp_path, "shipped"), "shipped")


def test_sigkill_at_any_point_leaves_the_adapted_network_of_before_or_the_new_one(tmp_path):
    check(kills(tmp_path, "old"), "old")
