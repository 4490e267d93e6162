import io
import json
import os
import threading
from datetime import UTC, datetime

import pytest

from mistify_client.monitor.state.journal import Journal
from tests.support.interleaving import before_line


def journal(path, echo=None, **options):
    return Journal(path, echo, now=lambda: datetime(2026, 1, 2, tzinfo=UTC), **options)


def entries(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_entry_is_a_line_of_json(tmp_path):
    echo = io.StringIO()
    journal(tmp_path / "log", echo).note("switch", 'too "slow"\n', branch=1)
    entry = {
        "time": "2026-01-02T00:00:00.000+00:00",
        "event": "switch",
        "reason": 'too "slow"\n',
        "branch": 1,
    }
    assert entries(tmp_path / "log") == [entry]
    assert json.loads(echo.getvalue()) == entry


def test_the_log_never_exceeds_twice_its_limit(tmp_path):
    written = journal(tmp_path / "log", largest=2000)
    for number in range(200):
        written.note("stay", "x" * 50, number=number)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert set(sizes) == {"log", "log.1"}
    assert max(sizes.values()) <= 2000
    numbers = [entry["number"] for name in ("log.1", "log") for entry in entries(tmp_path / name)]
    assert numbers == list(range(numbers[0], 200))


def test_a_problem_and_its_end_are_logged_once(tmp_path):
    log = journal(tmp_path / "log")
    for reason in (None, "server away", "server away", "token refused", None, None):
        log.problem("new package", reason)
    events = [(entry["event"], entry["reason"]) for entry in entries(tmp_path / "log")]
    assert events == [
        ("problem", "server away"),
        ("problem", "token refused"),
        ("recovered", "new package: no problem any more"),
    ]
    assert log.problems == {}


@pytest.mark.parametrize("step", range(8))
def test_the_end_of_a_problem_is_logged_once_by_two_threads(tmp_path, step):
    log = journal(tmp_path / "log")
    log.problem("new package", "server away")

    def note_in_another_thread():
        if not log._lock.locked():  # it would block
            log.problem("new package", None)

    with before_line(Journal.problem, step, note_in_another_thread):
        log.problem("new package", None)
    assert [entry["event"] for entry in entries(tmp_path / "log")] == ["problem", "recovered"]


def test_an_error_is_a_problem_until_the_part_succeeds(tmp_path):
    written = journal(tmp_path / "log")
    with written.noting_problems("new package") as errors:
        raise OSError("no space")
    assert [str(error) for error in errors] == ["no space"]
    assert written.problems == {"new package": "no space"}
    with pytest.raises(ZeroDivisionError), written.noting_problems("new package"):
        raise ZeroDivisionError
    assert written.problems == {"new package": "no space"}
    with written.noting_problems("new package") as errors:
        pass
    assert (errors, written.problems) == ([], {})


def test_a_full_disk_loses_entries_and_is_a_problem_until_there_is_space(tmp_path):
    path = tmp_path / "log"
    path.symlink_to("/dev/full")
    log = journal(path)
    log.note("stay", "nobody reads this")
    assert "No space left" in log.problems["log"]
    assert [entry["reason"] for entry in log.last] == ["nobody reads this"]
    path.unlink()
    log.note("stay", "there is room again")
    assert log.problems == {}
    assert [entry["reason"] for entry in entries(path)] == ["there is room again"]


def test_entries_are_logged_even_if_the_output_pipe_is_closed(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb", buffering=0) as pipe:
        echo = io.TextIOWrapper(pipe, write_through=True)
        journal(tmp_path / "log", echo).note("stay", "written to the file all the same")
        assert len(entries(tmp_path / "log")) == 1
        echo.detach()


def test_entries_of_several_threads_do_not_interleave(tmp_path):
    shared = journal(tmp_path / "log", largest=10**9)
    threads = [
        threading.Thread(target=lambda n=n: [shared.note("stay", "y" * 500, thread=n) for _ in range(100)])
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(entries(tmp_path / "log")) == shared.noted == 400
