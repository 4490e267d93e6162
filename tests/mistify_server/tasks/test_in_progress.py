"""Work in progress, while the clock of the machine is corrected."""

import time

import pytest

from mistify_server.tasks.in_progress import InProgress


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_files_of_work_in_progress_are_newer_than_its_start_although_the_clock_is_corrected(
    monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    clock, work = time.time, InProgress()
    with work.entry():
        written_before = time.time()
        monkeypatch.setattr(time, "time", lambda: clock() + hours * 3600)
        assert work.oldest_start < min(written_before, time.time())
        assert work.oldest_start > clock() - 7200
    assert work.oldest_start == pytest.approx(time.time(), abs=600)
