import os
import signal
import subprocess
import sys

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.state.state import MonitorState
from tests.support.disks import files_limited_to

HOLD = """
import sys
from pathlib import Path
from mistify_client.monitor.state.state import MonitorState
with MonitorState.of(Path(sys.argv[1])).held():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(package):
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(package)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_daemon_for_a_package_is_refused(package, holder):
    state = MonitorState.of(package)
    assert state.is_held
    with pytest.raises(MistifyError, match=f"process {holder.pid}") as caught, state.held():
        pass
    assert caught.value.code is ErrorCode.CONFLICT


def test_a_killed_daemon_holds_no_lock(package, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    state = MonitorState.of(package)
    assert not state.is_held
    with state.held():
        assert state.is_held
    assert not state.is_held


def test_a_daemon_starts_on_a_full_disk(package):
    state = MonitorState.of(package)
    with state.held():
        pass
    with files_limited_to(0), state.held():
        assert state.is_held
    assert not state.is_held


def test_daemons_of_different_packages_run_side_by_side(package, holder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_bytes((package / "manifest.json").read_bytes())
    with MonitorState.of(other).held():
        pass


def test_a_directory_without_a_package_has_no_daemon(tmp_path):
    with pytest.raises(MistifyError, match="is not a package"):
        MonitorState.of(tmp_path)
