"""Tuning sessions that are killed, or that another process or another version interferes with."""

import os
import signal
import subprocess
import sys

import pytest

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify_client.files import held_alone
from mistify_client.runtime.versions import current, install
from mistify_client.tuning import installing, session


def test_only_one_process_tunes_a_package(device):
    own = device(0)
    own.state.mkdir(parents=True)
    with held_alone(own.state, ""), pytest.raises(MistifyError, match="already") as caught:
        own.tune()
    assert caught.value.code is ErrorCode.CONFLICT


def test_a_version_installed_before_the_tuning_is_noticed_before_training(device, data, monkeypatch):
    own = device(0)

    def meanwhile(*args):
        trainer = load_trainer(*args)
        install(own.package, data / "trainable_narrow")
        return trainer

    load_trainer = session.load_trainer
    monkeypatch.setattr(session, "load_trainer", meanwhile)
    monkeypatch.setattr(session.Tuner, "run", lambda *args: pytest.fail("it was trained"))
    with pytest.raises(MistifyError, match="another version") as caught:
        own.tune()
    assert caught.value.code is ErrorCode.CONFLICT


def test_a_version_installed_during_the_tuning_is_not_replaced(device, data, monkeypatch):
    own = device(0)
    run = session.Tuner.run

    def meanwhile(self, *args):
        progress = run(self, *args)
        install(own.package, data / "trainable_narrow")
        return progress

    monkeypatch.setattr(session.Tuner, "run", meanwhile)
    with pytest.raises(MistifyError, match="another version") as caught:
        own.tune()
    assert caught.value.code is ErrorCode.CONFLICT
    assert Manifest.load(current(own.package)).goal == "third"


def test_a_version_installed_while_the_new_one_is_written_is_not_replaced(device, data, monkeypatch):
    own = device(0)

    def meanwhile(*args):
        install(own.package, data / "trainable_narrow")
        return write(*args)

    write = installing.write_weights
    monkeypatch.setattr(installing, "write_weights", meanwhile)
    with pytest.raises(MistifyError, match="another version") as caught:
        own.tune()
    assert caught.value.code is ErrorCode.CONFLICT
    assert Manifest.load(current(own.package)).goal == "third"


KILLED = """
import os, signal, sys
from pathlib import Path
from mistify.peers.hints import Hints
from mistify_client.tuning import Peering, tune
from mistify_client.tuning.progress import ProgressFile
from tests.mistify_client.tuning.devices import SETTINGS, examples

package, address, group, left = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
save = ProgressFile.save

def counted(self, progress):
    global left
    save(self, progress)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

ProgressFile.save = counted
tune(package, examples(100), Peering(address, group, Hints(view_degrees=0)), settings=SETTINGS)
"""


def test_a_killed_tuner_resumes(address, device):
    """Killed repeatedly, it gives the same result as one that was never killed."""
    device(1).tune(address)
    own = device(0)
    kept = []
    for saves in (2, 9, 3):
        command = [sys.executable, "-c", KILLED, str(own.package), address, fleet.GROUP, str(saves)]
        finished = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
        assert finished.returncode == -signal.SIGKILL, finished.stderr
        kept.append((own.state / "progress.safetensors").stat().st_mtime_ns)
    assert kept == sorted(set(kept))
    message = []
    outcome = own.tune(address, display=Lines(message))
    assert message[0].startswith("resuming: ")
    assert outcome.ended.loss < outcome.began.loss
    assert outcome.version is not None
    assert not (own.state / "progress.safetensors").exists()


class Lines:
    """A display that records its messages."""

    def __init__(self, message):
        self.message = message

    def update(self, subject, progress, source):
        pass

    def show_line(self, line):
        self.message.append(line)
