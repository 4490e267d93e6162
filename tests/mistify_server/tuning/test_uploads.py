"""Uploads to a full disk."""

import pytest

from mistify.errors import ErrorCode, MistifyError
from tests.support.disks import files_limited_to


@pytest.mark.parametrize("chunk", [50, 10_000])
async def test_weights_can_be_sent_again_after_the_disk_was_full(coordinator, device, chunk):
    await coordinator.enter(1)  # files that are only written once exist by then
    files = coordinator.files
    with (
        files_limited_to(120),
        pytest.raises(MistifyError, match=r"cannot be written .*free space") as caught,
    ):
        await coordinator.publish(device, chunk=chunk)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert coordinator.files == files
    assert list(coordinator.store.weights.incoming().iterdir()) == []
    await coordinator.publish(device, chunk=chunk)


async def test_a_directory_that_cannot_be_created_is_reported(coordinator, device, tmp_path):
    weights = tmp_path / "store" / "weights"
    weights.write_text("a file where the directory should be")
    with pytest.raises(MistifyError, match=r"the server's .* cannot be written .*free space") as caught:
        await coordinator.publish(device)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert str(tmp_path) not in str(caught.value)
