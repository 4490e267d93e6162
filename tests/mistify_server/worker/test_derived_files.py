"""Files derived from a preparation: made once, and again if they are outdated or damaged."""

from pathlib import Path

import pytest

from mistify_server.store.artifacts import artifacts_of
from mistify_server.store.preparations import Preparations
from mistify_server.worker.derived_files import DerivedFiles


class Maker:
    """Makes another content each time."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> bytes:
        self.made += 1
        return f"content\n{self.made}".encode()


@pytest.fixture
def store(tmp_path: Path) -> Preparations:
    return Preparations(artifacts_of(tmp_path))


def test_a_file_is_made_once_for_each_key(store: Preparations) -> None:
    prepared, make = store.finish(64 * "a", b"prepared"), Maker()
    for files in (DerivedFiles(store), DerivedFiles(store)):
        assert files.get(prepared, "network", "key", make) == b"content\n1"
    assert DerivedFiles(store).get(prepared, "network", "other key", make) == b"content\n2"
    assert DerivedFiles(store).get(prepared, "network", "key", make) == b"content\n3"
    assert DerivedFiles(store).get(prepared, "other", "key", make) == b"content\n4"


def test_preparations_have_files_of_their_own(store: Preparations) -> None:
    make, files = Maker(), DerivedFiles(store)
    contents = [files.get(store.finish(64 * name, name.encode()), "network", "key", make) for name in "ab"]
    assert contents == [b"content\n1", b"content\n2"]


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: content[:9], lambda _: b""])
def test_a_damaged_file_is_made_again(store: Preparations, damage) -> None:
    prepared, make = store.finish(64 * "a", b"prepared"), Maker()
    DerivedFiles(store).get(prepared, "network", "key", make)
    beside = store.beside(prepared)
    store.keep(beside, "network", damage(store.part(beside, "network")))
    assert DerivedFiles(store).get(prepared, "network", "key", make) == b"content\n2"
