import os
import signal
import subprocess
import sys

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.state.state import MonitorState

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


def test_the_second_daemon_of_a_package_is_refused(package, holder):
    state = MonitorState.of(package)
    assert state.is_held
    with pytest.raises(MistifyError, match=f"process {holder.pid}") as caught, state.held():
        pass
    assert caught.value.code is ErrorCode.CONFLICT


def test_a_daemon_that_was_killed_holds_nothing(package, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    state = MonitorState.of(package)
    assert not state.is_held
    with state.held():
        assert state.is_held
    assert not state.is_held


def test_daemons_of_other_packages_do_not_mind(package, holder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "manifest.json").write_bytes((package / "manifest.json").read_bytes())
    with MonitorState.of(other).held():
        pass


def test_what_is_no_package_has_no_daemon(tmp_path):
    with pytest.raises(MistifyError, match="is not a package"):
        MonitorState.of(tmp_path)
