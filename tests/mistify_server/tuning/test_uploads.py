"""Uploads to a full disk, and limits that keep it from filling up."""

from dataclasses import replace

import pytest

from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify_server.tuning.service import TuningService
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


@pytest.mark.parametrize("index_address", ["memory"])
async def test_devices_cannot_fill_the_disk(coordinator, device, storage, clock):
    """Whoever has the token of a device can join with any number of secrets."""
    most = 2 * len(device.weights) + 10
    service = TuningService(coordinator.store, storage, clock, most_bytes=most)
    limited = replace(coordinator, service=service)
    (first,) = await limited.enter(1)
    await limited.publish(device)
    files = limited.files
    with pytest.raises(MistifyError, match=r"take 1.* more; expected at most 10B: ") as caught:
        await limited.enter(2)
    assert (caught.value.code, limited.files) == (ErrorCode.NO_ROOM, files)
    tuned = replace(first, weights=fleet.device(3).weights)
    await limited.publish(tuned, version=2)  # in place of what it has published
    restarted = replace(limited, service=TuningService(limited.store, storage, clock, most_bytes=most))
    restarted.service.sweep()
    with pytest.raises(MistifyError) as caught:
        await restarted.enter(2)
    assert caught.value.code is ErrorCode.NO_ROOM
    await restarted.service.leave(device.key)
    await restarted.enter(2)
