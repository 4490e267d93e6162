"""A helper as seen from a device whose own files are missing for a while."""

from pathlib import Path

import pytest

from mistify.package.opened import Package
from mistify_client.lending import remote_helper
from mistify_client.lending.config import LendingConfig
from mistify_client.lending.packages import BlockNetwork
from mistify_client.lending.remote_helper import RemoteHelper
from tests.mistify_client.lending.conftest import until
from tests.support.block_stores import ORIGINAL
from tests.support.tokens import write_token


@pytest.mark.parametrize("missing", ["ca", "token_file"])
def test_a_helper_is_asked_again_as_soon_as_the_files_for_it_can_be_read(
    float_package: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(remote_helper, "_LEAST_PAUSE", 0.01)
    opened, path = Package.open(float_package), float_package.with_name("file")
    assert opened.blocks is not None
    network = BlockNetwork(float_package, opened.blocks, opened.blocks.network_of(ORIGINAL), (0, 1, 2, 3))
    address = "tls://127.0.0.1:1"
    remote = RemoteHelper(address, network, LendingConfig(helpers=(address,), **{missing: path}))
    try:
        until(lambda: str(path) in remote.problem)
        write_token(path, "a token, or no certificate")
        until(lambda: f"{address} cannot be reached" in remote.problem)
    finally:
        remote.close()
