import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from mistify.files.locking import lock
from mistify_client.runtime.statistics import CAPACITY, Recorder, StageStatistics, observed, recorder_bytes

HOLD = """
import sys
from pathlib import Path
from mistify_client.runtime.statistics import Recorder
recorder = Recorder.open(Path(sys.argv[1]), 3, 7, 2)
recorder.record(1.0, 0.5, 0.25, 2.0, option=2, stage=3, batch=4)
print("ready", flush=True)
sys.stdin.read()
"""

WRITE = """
import itertools, sys
from pathlib import Path
from mistify_client.runtime.statistics import Recorder
recorder = Recorder.open(Path(sys.argv[1]), 1, 0, 1)
print("ready", flush=True)
for number in itertools.count():
    recorder.record(float(number), float(number % 1000), float(number % 1000), 0.0, option=0, batch=number)
"""


@contextmanager
def holder(state: Path, script: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """Start a process with a recorder that has recorded one inference, or that runs another script."""
    command = [sys.executable, "-c", script, str(state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def files(state: Path) -> list[str]:
    return sorted(path.name for path in (state / "runtimes").iterdir())


def test_statistics_of_another_process_are_read(tmp_path):
    with holder(tmp_path) as process:
        (actual,) = observed(tmp_path)
        assert (actual.pid, actual.generation, actual.threads) == (process.pid, 7, 2)
        assert actual.counts == (0, 0, 1)
        assert actual.inferences.tolist() == [(1.0, 0.5, 0.25, 2.0, 2, 3, 4, 0)]


def test_inferences_with_a_helper_are_marked():
    recorder = Recorder(1, 0, 1)
    for helped in (False, True):
        recorder.record(1.0, 0.5, 0.5, 0.0, option=0, batch=1, helped=helped)
    assert recorder.observed().inferences["helped"].tolist() == [0, 1]


def test_statistics_of_a_killed_process_are_removed(tmp_path):
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert files(tmp_path) == [f"{process.pid}-0"]
    assert observed(tmp_path) == []
    recorder = Recorder.open(tmp_path, 1, 0, 1)
    assert f"{process.pid}-0" not in files(tmp_path)
    assert [actual.counts for actual in observed(tmp_path)] == [recorder.observed().counts]


def test_each_model_of_a_process_has_its_own_statistics(tmp_path):
    first, second = Recorder.open(tmp_path, 1, 0, 1), Recorder.open(tmp_path, 2, 0, 1)
    first.record(1.0, 1.0, 1.0, 0.0, option=0, batch=1)
    assert sorted(actual.counts for actual in observed(tmp_path)) == [(0, 0), (1,)]
    del second
    assert [actual.counts for actual in observed(tmp_path)] == [(1,)]


def test_there_are_no_statistics_before_the_first_inference(tmp_path):
    assert observed(tmp_path / "none") == []


def test_other_files_are_ignored(tmp_path):
    with holder(tmp_path) as process:
        (tmp_path / "runtimes" / f"{process.pid}-0").write_bytes(b"something else altogether")
        assert observed(tmp_path) == []


def test_a_model_is_seen_beside_what_cannot_be_opened(tmp_path):
    (tmp_path / "runtimes" / "1-0").mkdir(parents=True)  # or the file of an app of another user
    recorder = Recorder.open(tmp_path, 1, 0, 1)
    assert len(observed(tmp_path)) == 1
    del recorder


@pytest.mark.parametrize("count", [0, 1, CAPACITY - 1, CAPACITY, 3 * CAPACITY + 7])
def test_the_most_recent_inferences_are_kept_in_order(count):
    recorder = Recorder(2, 0, 1)
    for number in range(count):
        recorder.record(float(number), 0.5, 0.5, 0.0, option=number % 2, batch=1)
    actual = recorder.observed()
    assert actual.counts == ((count + 1) // 2, count // 2)
    kept = min(count, CAPACITY - 1)
    np.testing.assert_array_equal(actual.inferences["ended"], np.arange(count - kept, count))


def test_records_read_during_writing_are_complete(tmp_path):
    counts, seen = [], 0
    with holder(tmp_path, WRITE):
        for _ in range(5000):
            (actual,) = observed(tmp_path)
            inferences = actual.inferences
            counts.append(actual.counts[0])
            seen += len(inferences)
            assert (np.diff(inferences["ended"]) == 1).all()
            np.testing.assert_array_equal(inferences["batch"], inferences["ended"])
            np.testing.assert_array_equal(inferences["latency_ms"], inferences["ended"] % 1000)
    assert counts[-1] - counts[0] > CAPACITY, "the oldest records are replaced during reading"
    assert seen > 0


def test_percentiles_cover_the_last_seconds():
    recorder = Recorder(3, 0, 1)
    recorder.record(10.0, 100.0, 100.0, 0.0, option=0, batch=1)
    for number in range(1, 101):
        recorder.record(20.0 + number / 100, float(number), float(number), 0.0, option=2, batch=1)
    statistics = recorder.observed().statistics(["a", "b", "c"], 5.0, now=22.0)
    assert (statistics.inferences, statistics.option) == (100, "c")
    assert statistics.counts == {"a": 1, "b": 0, "c": 100}
    assert (statistics.p50_ms, statistics.p95_ms) == pytest.approx((50.5, 95.05))


def test_medians_of_stages_are_apart():
    recorder = Recorder(2, 0, 1)
    for option, stage, latency in [(0, 0, 9.0), (1, 0, 1.0), (1, 0, 2.0), (1, 0, 4.0), (1, 2, 8.0)]:
        recorder.record(20.0, latency, latency, 0.0, option=option, stage=stage, batch=1)
    recorder.record(30.0, 5.0, 5.0, 0.0, option=1, stage=1, batch=1)
    stages = recorder.observed().statistics(["whole", "exit"], 15.0, now=34.0).stages
    assert stages == {
        ("whole", 0): StageStatistics(1, 9.0),
        ("exit", 0): StageStatistics(3, 2.0),
        ("exit", 1): StageStatistics(1, 5.0),
        ("exit", 2): StageStatistics(1, 8.0),
    }
    assert list(recorder.observed().statistics(["whole", "exit"], 5.0, now=34.0).stages) == [("exit", 1)]


def test_percentiles_without_inferences_are_none():
    recorder = Recorder(1, 0, 1)
    idle = recorder.observed().statistics(["a"], 5.0)
    assert (idle.inferences, idle.p50_ms, idle.p95_ms, idle.option) == (0, None, None, None)


@pytest.mark.parametrize(
    ("magic", "first", "second"),
    [
        (b"MISTIFY\3", struct.pack("<iq", 2, 4), struct.pack("<iq", 0, 1)),
        (b"MISTIFY\4", struct.pack("<hhq", 2, 0, 4), struct.pack("<hhq", 0, 0, 1)),
    ],
    ids=["before exits", "before helpers"],
)
def test_a_file_in_an_earlier_format_can_be_read(tmp_path, magic, first, second):
    """The file is written by hand: magic, generation, branches, threads, counts, and a ring of records."""
    content = struct.pack("<8sIIQ", magic, 7, 3, 2) + struct.pack("<4Q", 2, 1, 0, 1)
    content += struct.pack("<dfff", 1.0, 0.5, 0.25, 2.0) + first + struct.pack("<dfff", 2.0, 1, 1, 0) + second
    path = tmp_path / "runtimes" / f"{os.getpid()}-0"
    path.parent.mkdir()
    path.write_bytes(content.ljust(recorder_bytes(3), b"\0"))
    with path.open("r+b") as file:
        lock(file)
        (actual,) = observed(tmp_path)
    assert (actual.generation, actual.threads, actual.counts) == (7, 2, (1, 0, 1))
    assert actual.inferences.tolist() == [
        (1.0, 0.5, 0.25, 2.0, 2, 0, 4, 0),
        (2.0, 1.0, 1.0, 0.0, 0, 0, 1, 0),
    ]
