"""The audit log holds whole lines of bounded length, and calls do not fail with it."""

import json
import logging
from pathlib import Path

import pytest

from mistify_server.identity.audit import AuditLog
from mistify_server.identity.callers import LOCAL
from tests.support.disks import files_limited_to


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_full_disk_is_reported_once_and_fails_no_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditLog(path)
    audit.record(LOCAL, "first")
    with caplog.at_level(logging.ERROR):
        for _ in range(2):  # it is reported again after lines could be written
            with files_limited_to(path.stat().st_size):
                audit.record(LOCAL, "unwritten")
                audit.record(LOCAL, "unwritten")
            audit.record(LOCAL, "last")
    assert len(caplog.records) == 2
    assert "cannot be written" in caplog.text
    assert "Logging error" not in capfd.readouterr().err
    assert [line["action"] for line in lines(path) if line["action"] != "unwritten"] == [
        "first",
        "last",
        "last",
    ]
    audit.close()


def test_a_file_that_cannot_be_opened_fails_no_call(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    AuditLog(tmp_path).record(LOCAL, "POST /v1/jobs")  # a directory
    assert "cannot be written: [Errno" in caplog.text


def test_texts_of_callers_stay_within_their_line(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    audit.record(LOCAL, 'DELETE /v1/jobs/a\n{"caller": "administrator"}\u2028\x00', "x" * 1_000_000)
    (line,) = lines(tmp_path / "audit.jsonl")
    assert (line["caller"], line["subject"]) == ("local", "x" * 300)
