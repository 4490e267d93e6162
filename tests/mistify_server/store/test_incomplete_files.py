"""Incomplete files that arrive at a path where another one was before."""

from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from mistify.files.locking import try_lock
from mistify_server.store.incomplete_files import received_alone
from mistify_server.store.uploads import KEPT_SECONDS, Uploads


def test_the_end_of_a_complete_file_leaves_the_next_one_alone(tmp_path: Path) -> None:
    part = tmp_path / "part"
    with ExitStack() as second:
        with received_alone(part):
            part.rename(tmp_path / "complete")
            second.enter_context(received_alone(part))
        assert part.exists()
    assert not part.exists()


def test_a_removal_leaves_what_has_arrived_in_the_meantime_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = Uploads(tmp_path, 10_000, set, lambda: 2e9 + KEPT_SECONDS)
    part = tmp_path / "arriving" / "digest"
    part.parent.mkdir()
    part.write_bytes(b"old")

    def just_too_late(file: IO[bytes]) -> bool:
        part.rename(tmp_path / "complete")
        part.write_bytes(b"new")
        return try_lock(file)

    monkeypatch.setattr("mistify_server.store.incomplete_files.try_lock", just_too_late)
    assert uploads.collect() == 0
    assert part.read_bytes() == b"new"
