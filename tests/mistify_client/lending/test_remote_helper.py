"""A helper as seen from a device: its own files are missing for a while, or an answer comes late."""

from pathlib import Path

import pytest

from mistify.package.opened import Package
from mistify_client.lending import remote_helper
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.remote_helper import RemoteHelper
from mistify_client.lending.streams import Answered
from mistify_client.lending.tensors import zeros_of
from tests.mistify_client.lending.conftest import TOKEN, helper, until
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


def test_only_one_thread_takes_a_late_answer(float_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The helper's own thread looks after it just when the app's thread is about to take the answer."""
    write_token(float_package.with_name("token"), TOKEN)
    with helper(float_package) as address:
        config = LendingConfig(helpers=(address,), token_file=float_package.with_name("token"))
        network = network_of(float_package)
        remote = RemoteHelper(address, network, config)
        try:
            until(lambda: remote.is_available)
            stream = remote._stream
            assert stream is not None
            remote.start(0, 4, zeros_of(network.inputs_of(0)))
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
        finally:
            remote.close()
