"""A helper as seen from a device: something is missing for a while, or comes late."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from mistify.package.opened import Package
from mistify_client.lending import remote_helper
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.links import Link
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.remote_helper import RemoteHelper
from mistify_client.lending.streams import Answered, HelperStream
from mistify_client.lending.tensors import zeros_of
from tests.mistify_client.lending.conftest import TOKEN, helper, until, workers
from tests.support.block_stores import ORIGINAL
from tests.support.tokens import write_token


def network_of(package: Path) -> BlockNetwork:
    opened = Package.open(package)
    assert opened.blocks is not None
    return BlockNetwork(package, opened.blocks, opened.blocks.network_of(ORIGINAL), (0, 1, 2, 3))


@pytest.mark.parametrize("missing", ["ca", "token_file"])
def test_a_helper_is_asked_again_as_soon_as_the_files_for_it_can_be_read(
    float_package: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(remote_helper, "_LEAST_PAUSE", 0.01)
    path, address = float_package.with_name("file"), "tls://127.0.0.1:1"
    config = LendingConfig(helpers=(address,), **{missing: path})
    remote = RemoteHelper(address, network_of(float_package), config)
    try:
        until(lambda: str(path) in remote.problem)
        write_token(path, "a token, or no certificate")
        until(lambda: f"{address} cannot be reached" in remote.problem)
    finally:
        remote.close()


@contextmanager
def asked(package: Path) -> Iterator[RemoteHelper]:
    """Run a helper, and yield it as a device sees it, whose connection is being made."""
    with helper(package) as address:
        token = write_token(package.with_name("token"), TOKEN)
        config = LendingConfig(helpers=(address,), token_file=token)
        remote = RemoteHelper(address, network_of(package), config)
        try:
            yield remote
        finally:
            remote.close()


def test_only_one_thread_takes_a_late_answer(float_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper's own thread looks after it just when the app's thread is about to take the answer."""
    monkeypatch.setattr(remote_helper, "_PROBE_SECONDS", 3600)  # not at another time
    with asked(float_package) as remote:
        until(lambda: remote.is_available)
        stream = remote._stream
        assert stream is not None
        remote.start(0, 4, zeros_of(network_of(float_package).inputs_of(0)))
        remote.abandon()
        until(lambda: not stream._responses.empty())
        take = stream._answered

        def interrupted(seconds: float) -> Answered:
            monkeypatch.setattr(stream, "_answered", take)
            remote._look_after(stream)
            return take(seconds)

        monkeypatch.setattr(stream, "_answered", interrupted)
        assert remote.is_available
        assert remote._stream is stream


def test_a_helper_is_asked_again_after_any_failure(
    float_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_helper, "_LEAST_PAUSE", 0.01)
    observe = Link.observe

    def exhausted(*_: object) -> None:
        raise MemoryError("nothing left")

    monkeypatch.setattr(Link, "observe", exhausted)
    with asked(float_package) as remote:
        until(lambda: "cannot be asked: MemoryError: nothing left" in remote.problem)
        monkeypatch.setattr(Link, "observe", observe)
        until(lambda: remote.is_available)


def test_a_session_that_begins_while_it_is_closed_ends(
    float_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loaded, closed, others = HelperStream.load, Event(), Event(), workers()

    def slow(stream: HelperStream, *arguments: object) -> object:
        ready = load(stream, *arguments)  # type: ignore[arg-type]
        loaded.set()
        closed.wait()
        return ready

    monkeypatch.setattr(HelperStream, "load", slow)
    with asked(float_package) as remote:
        loaded.wait()
        assert workers() - others  # the process of the session
        remote.close()
        closed.set()
        until(lambda: not workers() - others)
