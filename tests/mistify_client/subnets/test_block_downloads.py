"""The blocks that a device downloads, and its behaviour without those that it cannot download."""

import json

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.machine import machine, runtime
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockStore
from mistify.package.manifest import NETWORK, Manifest
from mistify.parsing.quantities import parse_time
from mistify.v1 import porting_pb2 as pb
from mistify_client import load
from mistify_client.assembly.executions import Execution
from mistify_client.origin import ORIGIN, Origin, note_token_file
from mistify_client.runtime.versions import current, install, state_directory
from mistify_client.subnets.block_downloads import BlockDownloads, promising
from mistify_client.subnets.block_latencies import LatencyTable
from mistify_client.subnets.search_session import TABLES, adapt
from tests.mistify_client.pools import make_elastic_package
from tests.mistify_client.subnets.spaces import known
from tests.support import elastic_stores
from tests.support.tokens import write_token


@pytest.fixture
def package(tmp_path):
    """Return the complete package on the server."""
    return make_elastic_package(tmp_path / "package")


@pytest.fixture
def device(service, package, tmp_path):
    """Return the directory of the package on a device that has loaded it from the server."""
    service.serve_package(package)
    load(server=service.address, job="job-1", goal="half", cache=tmp_path / "cache")
    return tmp_path / "cache" / "job-1" / "half"


@pytest.fixture
def data(tmp_path, device_data):
    images, classes = device_data
    np.savez(tmp_path / "mine.npz", x=images, y=classes)
    return tmp_path / "mine.npz"


def adapted(package, data, latency, **settings):
    return adapt(package, data, parse_time(latency), seconds=1e-3, **settings)


def blocks_in(directory):
    """Return the names of the blocks in a directory."""
    return {one.file for one in BlockStore.load(directory).variants if (directory / one.file).exists()}


def slow_down_shipped(package):
    """Set the latency of the shipped network to a second, so that blocks have to be used."""
    tables = state_directory(package) / TABLES
    tables.mkdir(parents=True, exist_ok=True)
    execution, digest = Execution.INTERPRETER, Manifest.load(package).files[NETWORK].sha256
    path = tables / f"latency-{execution}-1.json"
    table = LatencyTable(machine=machine(), runtime=runtime(), execution=execution, threads=1)
    known = LatencyTable.model_validate_json(path.read_bytes()).latencies_ms if path.exists() else {}
    changed = table.model_copy(update={"latencies_ms": {**known, digest: 1e3}})
    path.write_text(changed.model_dump_json())


def least_lost(case, budget_ms, files=None):
    """Return the lowest loss of a subnet of these blocks within a latency, by brute force."""
    return min(
        case.lost_by(subnet)
        for subnet in case.space
        if case.table.latency_ms(subnet) <= budget_ms
        and (files is None or files.issuperset(one.file for one in subnet))
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_the_selected_blocks_contain_a_nearly_optimal_subnet(seed, share):
    case = known(6, seed=seed)
    budget_ms = share * case.original_ms
    chosen = promising(case.as_the_server_knows_it, case.table, budget_ms)
    files = {one.file for one in (*chosen, *case.space.original)}
    assert least_lost(case, budget_ms, files) <= 1.1 * least_lost(case, budget_ms)
    assert len(files) < len(case.space.variants)


def test_slower_and_worse_blocks_are_not_selected():
    case = known(5)
    poor = case.space.store.variants[-1]
    assert poor not in case.space.original
    case.table.latencies_ms[poor.content.sha256] = 2 * case.original_ms
    case.lost[poor] = 100.0
    chosen = promising(case.as_the_server_knows_it, case.table, 0.9 * case.original_ms)
    assert poor.file not in {one.file for one in chosen}
    assert len(chosen) > 5


def test_all_blocks_are_selected_without_estimates_from_the_server():
    case = known(4)
    assert promising(case.space, case.table, 0.5 * case.original_ms) == set(case.space.variants)


def test_loading_a_package_downloads_no_blocks(service, device, package):
    assert blocks_in(device) == set()
    assert blocks_in(package)
    assert Origin.load(device) == Origin(server=service.address, job="job-1", goal="half")
    expected = load(package)(elastic_stores.digits()[0][:5])
    np.testing.assert_array_equal(load(device)(elastic_stores.digits()[0][:5]), expected)


def test_adapting_downloads_the_blocks_that_may_be_used(service, device, package, data):
    lines = []
    service.fake.requests.clear()
    result = adapted(device, data, "0.8x", on_progress=lines.append)
    original = {f"{block.name}.tflite" for block in elastic_stores.blocks()[: elastic_stores.RESIDUAL + 2]}
    fetched = {request.file for request in service.fake.requests_of(pb.FetchPackageRequest)}
    # Whether it may use all of them depends on its measurements.
    assert original < fetched == blocks_in(device) <= blocks_in(package)
    assert lines[0].startswith(f"fetching {len(original)} of {len(blocks_in(package))} blocks from ")
    model = load(device)
    assert [each.blocks for each in model.options if each.id == model.running] == [result.chosen.files]


@pytest.mark.slow
def test_without_a_server_only_local_blocks_are_used(service, device, data):
    slow_down_shipped(device)
    before = adapted(device, data, "0.8x")
    (device / next(file for file in before.chosen.files if "shrunk" in file or "merge" in file)).unlink()
    here = blocks_in(device)
    service.stop()
    lines = []
    result = adapted(device, data, "1x", on_progress=lines.append)
    assert result.chosen.latency_ms <= result.pool.budget_ms
    assert blocks_in(device) == here
    assert any(line.startswith("no other blocks can be fetched") for line in lines)


@pytest.mark.slow
def test_without_a_server_and_the_original_network_adapting_is_refused(service, device, data):
    service.stop()
    with pytest.raises(MistifyError) as caught:
        adapted(device, data, "0.8x")
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert not (state_directory(device) / "pool.json").exists()
    assert load(device)(elastic_stores.digits()[0][:5]).shape == (5, 10)


@pytest.mark.slow
def test_without_a_server_the_error_does_not_call_the_latency_impossible(service, device, data):
    """Only the original network is local: faster subnets exist, but the server is unreachable."""
    result = adapted(device, data, "1x")
    for file in blocks_in(device) - set(result.original.files):
        (device / file).unlink()
    slow_down_shipped(device)
    service.stop()
    pool = (state_directory(device) / "pool.json").read_bytes()
    with pytest.raises(MistifyError) as caught:
        adapted(device, data, "0.8x")
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert (state_directory(device) / "pool.json").read_bytes() == pool


def test_a_damaged_downloaded_block_is_repaired(service, device, data):
    result = adapted(device, data, "0.8x")
    here, file = blocks_in(device), result.original.files[0]
    content = (device / file).read_bytes()
    (device / file).write_bytes(b"damaged")
    load(server=service.address, job="job-1", goal="half", cache=device.parent.parent)
    assert (device / file).read_bytes() == content
    assert blocks_in(device) == here


def test_all_blocks_are_downloaded_if_the_selected_ones_are_too_slow(service, device, package, data):
    """The server's estimates may be wrong for this device, where only the original blocks are fast."""
    store = BlockStore.load(device)
    slow = store.model_copy(
        update={
            "variants": tuple(
                one.model_copy(
                    update={"estimate": one.estimate.model_copy(update={"flops": 10**9})}
                    if "-" in one.file.removeprefix("block-")
                    else {}
                )
                for one in store.variants
            )
        }
    )
    (device / "blocks.json").write_text(slow.model_dump_json())
    slow_down_shipped(device)
    result = adapted(device, data, "0.8x")
    assert result.chosen.latency_ms <= result.pool.budget_ms
    assert blocks_in(device) == blocks_in(package)


def test_a_missing_block_without_a_known_server_is_named(device, data):
    (device / ORIGIN).unlink()
    with pytest.raises(MistifyError, match=r"stem\.tflite.*missing or damaged.*fetch it again") as caught:
        adapted(device, data, "0.8x")
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


def fetch_all(device, token_file=None):
    """Download all blocks of a device's package."""
    store = BlockStore.load(device)
    with BlockFiles(device) as files:
        downloads = BlockDownloads(files, state_directory(device), store, token_file, lambda line: None)
        downloads.fetch(store.variants)


def sent(service):
    """Return the authorization of the calls that the server has received since its record was cleared."""
    return {dict(metadata).get("authorization") for metadata in service.fake.metadata}


def test_the_token_recorded_for_the_server_is_sent(service, device, tmp_path):
    note_token_file(state_directory(device), service.address, write_token(tmp_path / "token", "own"))
    service.fake.metadata.clear()
    fetch_all(device)
    assert sent(service) == {"Bearer own"}


def test_the_token_is_not_sent_to_another_server(service, device, tmp_path):
    note_token_file(state_directory(device), "other:1", write_token(tmp_path / "token", "own"))
    service.fake.metadata.clear()
    fetch_all(device)
    assert sent(service) == {None}


def test_a_package_cannot_choose_the_token_file(service, device, tmp_path):
    secret = write_token(tmp_path / "secret", "of someone else")
    origin = json.loads((device / ORIGIN).read_text())
    (device / ORIGIN).write_text(json.dumps({**origin, "token_file": str(secret)}))
    service.fake.metadata.clear()
    fetch_all(device)
    assert sent(service) == {None}
    next(device.glob("*stem*.tflite")).unlink()
    service.fake.metadata.clear()
    fetch_all(device, write_token(tmp_path / "token", "own"))
    assert sent(service) == {"Bearer own"}


def test_an_installed_version_without_blocks_downloads_them_as_well(device, tmp_path, data):
    shipped = make_elastic_package(tmp_path / "shipped" / "package")
    install(shipped, device)
    assert blocks_in(current(shipped)) == set()
    slow_down_shipped(shipped)
    result = adapted(shipped, data, "0.8x")
    assert set(result.chosen.files) <= blocks_in(current(shipped))
