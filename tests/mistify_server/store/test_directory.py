import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mistify_server.store.directory import open_store, serving


def test_a_new_store_is_not_accessible_to_other_users(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with open_store(directory):
        assert modes(directory, directory / "logs") == [0o700, 0o700]


def test_a_server_removes_access_for_other_users_from_an_old_store(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with file_mode_mask(0o022):
        with open_store(directory) as store:
            store.artifacts.put(b"weights", ".keras")
        (directory / "logs").chmod(0o755)
    open_to_all = directory / "mistify.db", directory / "artifacts"
    assert modes(*open_to_all) == [0o644, 0o755]
    with serving(directory):
        assert modes(*open_to_all, directory / "logs") == [0o600, 0o700, 0o700]


def modes(*paths: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


@contextmanager
def file_mode_mask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
