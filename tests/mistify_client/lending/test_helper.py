"""A helper over real gRPC: the right answers, and the refusal of everything else."""

import os
import shutil
import signal
import subprocess
import sys
import zlib
from itertools import combinations
from pathlib import Path

import grpc
import numpy as np
import pytest
import trustme

from mistify.errors import ErrorCode, MistifyError
from mistify.package.opened import Package
from mistify.v1 import lending_pb2 as pb
from mistify.wire.listening import Certificate
from mistify_client.lending.helper import serving
from mistify_client.lending.packages import LentPackages
from mistify_client.lending.quotas import Quotas
from mistify_client.lending.rate_limit import RateLimit
from mistify_client.lending.sessions import PROBE_BYTES
from tests.mistify_client.chains import load_chain
from tests.mistify_client.lending.conftest import LIMITS, TOKEN, helper, until, workers
from tests.mistify_client.lending.raw_client import (
    RawClient,
    inference,
    network_message,
    original,
    raw_client,
)
from tests.support.paths import DATA


def features(package: Path) -> list[dict[str, np.ndarray]]:
    """Return the input of each block for one example, and the outputs of the network."""
    store, blocks = original(package)
    (info,) = store.inputs
    values = np.random.default_rng(0).uniform(size=[max(1, size) for size in info.shape])
    inputs = {info.name: info.quantized(values)}
    return [inputs, *load_chain(package, [block.file for block in blocks], 1).features(inputs)]


def test_the_answer_is_that_of_the_device_bit_by_bit_wherever_the_network_is_cut(package) -> None:
    expected = features(package)
    with helper(package) as address, raw_client(address) as client:
        ready = client.asked(network=network_message(package)).ready
        assert len(ready.segment_ms) == len(expected) - 1
        assert min(ready.segment_ms) > 0
        for first, tensors in enumerate(expected[:-1]):
            answer = client.asked(inference=inference(package, first + 1, first, tensors)).answer
            (name, outputs), *_ = expected[-1].items()
            (tensor,) = answer.tensors
            assert tensor.content == outputs.tobytes(), f"{name} from block {first}"
            assert tensor.crc32 == zlib.crc32(tensor.content)
            assert (answer.number, answer.computing_ms > 0) == (first + 1, True)
            assert answer.serving_ms > answer.computing_ms


def test_an_inference_may_end_before_any_segment_with_its_inputs_bit_by_bit(package) -> None:
    expected = features(package)
    with helper(package) as address, raw_client(address) as client:
        client.asked(network=network_message(package))
        for number, (first, end) in enumerate(combinations(range(len(expected)), 2), start=1):
            request = inference(package, number, first, expected[first], end)
            (tensor,) = client.asked(inference=request).answer.tensors
            (outputs,) = expected[end].values()
            assert tensor.content == outputs.tobytes(), f"from block {first} to {end}"


def test_the_transfer_is_timed_from_the_announcement(float_package) -> None:
    with helper(float_package) as address, raw_client(address) as client:
        assert not client.asked(probe=pb.Probe(number=1)).answer.HasField("transfer_ms")
        client.send(announcement=pb.Announcement())
        answer = client.asked(probe=pb.Probe(number=2, content=bytes(PROBE_BYTES))).answer
        assert answer.transfer_ms > 0


@pytest.mark.parametrize("token", [None, "wrong", TOKEN[:-1]])
def test_a_device_without_the_token_is_refused(float_package, token) -> None:
    with helper(float_package) as address, raw_client(address, token) as client:
        error = client.refused(network=network_message(float_package))
        assert error.code is ErrorCode.UNAUTHENTICATED
        assert "token_file in [lending]" in error.message


def test_a_block_that_the_helper_does_not_have_is_refused(float_package) -> None:
    with helper(float_package) as address, raw_client(address) as client:
        error = client.refused(network=network_message(DATA / "blocks_int8"))
        assert error.code is ErrorCode.NOT_FOUND
        assert "mistify lend with --package" in error.message


def test_blocks_that_are_no_network_are_refused(float_package) -> None:
    blocks = network_message(float_package).blocks
    wrong = [(blocks[1:], [0]), (blocks, []), (blocks, [1]), (blocks, [0, 4]), (blocks, [0, 2, 2])]
    with helper(float_package) as address:
        for each, starts in wrong:
            with raw_client(address) as client:
                error = client.refused(network=pb.NetworkOfBlocks(blocks=each, starts=starts))
                assert error.code is ErrorCode.INVALID_CONFIG


def wrong_requests(package: Path) -> dict[str, dict[str, object]]:
    """Return requests that are refused after the network and an inference with the number 5."""
    tensors = features(package)[0]
    right = inference(package, 6, 0, tensors)
    shorter, damaged, none, twice = (pb.InferenceRequest() for _ in range(4))
    for each in (shorter, damaged, none, twice):
        each.CopyFrom(right)
    shorter.tensors[0].content = right.tensors[0].content[:-4]
    damaged.tensors[0].crc32 ^= 1
    del none.tensors[:]
    twice.tensors.append(right.tensors[0])
    rounded = inference(package, 6, 0, tensors)
    rounded.rounded_answer = True  # of the outputs
    return {
        "has 764 bytes; expected 768": {"inference": shorter},
        "its CRC-32 differs": {"inference": damaged},
        "got 0 tensors; expected 1": {"inference": none},
        "got 2 tensors; expected 1": {"inference": twice},
        "segments from 4 to 4 of 4": {"inference": pb.InferenceRequest(number=6, segment=4)},
        "segments from 2 to 2 of 4": {"inference": pb.InferenceRequest(number=6, segment=2, end=2)},
        "segments from 2 to 5 of 4": {"inference": pb.InferenceRequest(number=6, segment=2, end=5)},
        "a request to round": {"inference": rounded},
        "the number 5 after 5": {"inference": inference(package, 5, 0, tensors)},
        "a second network": {"network": network_message(package)},
        "an empty request": {},
        "a probe of 65537 bytes": {"probe": pb.Probe(number=6, content=bytes(PROBE_BYTES + 1))},
    }


def test_wrong_requests_end_their_session_and_no_other(float_package) -> None:
    tensors = features(float_package)[0]
    with helper(float_package) as address, raw_client(address) as other:
        other.asked(network=network_message(float_package))
        for number, (message, request) in enumerate(wrong_requests(float_package).items(), start=1):
            with raw_client(address) as client:
                client.asked(network=network_message(float_package))
                client.asked(inference=inference(float_package, 5, 0, tensors))
                error = client.refused(**request)
                assert error.code is ErrorCode.INVALID_DATASET
                assert message in error.message
            assert other.asked(inference=inference(float_package, number, 0, tensors)).answer.number == number


def test_requests_out_of_order_are_refused_without_starting_a_process(float_package) -> None:
    tensors = features(float_package)[0]
    with helper(float_package) as address:
        with raw_client(address) as client:
            error = client.refused(inference=inference(float_package, 1, 0, tensors))
            assert "an inference before a network" in error.message
        with raw_client(address) as client:
            client.send(announcement=pb.Announcement())
            error = client.refused(announcement=pb.Announcement())
            assert "an announcement without a request after it" in error.message
        with raw_client(address) as client:
            error = client.refused(network=pb.NetworkOfBlocks())
            assert "a network without blocks" in error.message


def test_a_message_larger_than_any_tensor_is_refused_before_it_is_read(float_package) -> None:
    message = pb.InferenceRequest(number=1, tensors=[pb.TensorContent(content=bytes(1 << 20))])
    with helper(float_package) as address, raw_client(address) as client:
        with pytest.raises(grpc.RpcError) as caught:
            client.asked(inference=message)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_more_devices_than_allowed_are_refused_until_one_leaves(float_package) -> None:
    with helper(float_package, clients=1) as address:
        with raw_client(address) as first:
            first.asked(network=network_message(float_package))
            with raw_client(address) as second:
                error = second.refused(network=network_message(float_package))
                assert error.code is ErrorCode.NO_ROOM
                assert "--clients" in error.message

        def has_room() -> bool:
            with raw_client(address) as third:
                try:
                    return bool(third.asked(network=network_message(float_package)).ready.segment_ms)
                except MistifyError:
                    return False

        until(has_room)


def exhaust(client: RawClient) -> None:
    """Send probes without a pause until one is refused."""
    for number in range(1, 100_000):
        client.asked(probe=pb.Probe(number=number))


def test_the_rate_is_that_of_the_helper_after_a_few_requests_at_once() -> None:
    now = [0.0]
    limit = RateLimit(2, clock=lambda: now[0])
    assert [limit.spend() for _ in range(17)] == [True] * 16 + [False]
    now[0] = 0.5
    assert [limit.spend() for _ in range(2)] == [True, False]


def test_a_share_of_the_rate_is_a_share_of_the_requests_at_once_as_well() -> None:
    now = [0.0]
    limit = RateLimit(100, 0.9, lambda: now[0])
    assert sum(limit.spend() for _ in range(200)) == 90
    now[0] = 0.1
    assert sum(limit.spend() for _ in range(200)) == 9
    now[0] = 0.2
    assert [limit.spend(10), limit.spend(9)] == [False, True]


def test_more_inferences_than_allowed_are_refused(float_package) -> None:
    with helper(float_package, rate=2) as address, raw_client(address) as client:
        with pytest.raises(MistifyError) as caught:
            exhaust(client)
        error = caught.value
        assert (error.code, error.message[:31]) == (ErrorCode.NO_ROOM, "more than 2 inferences a second")


LIMITED = """
from mistify_client.lending.worker import limit_memory
import numpy
limit_memory(30_000_000)
numpy.ones(2_000_000)
try:
    numpy.ones(4_000_000)
except MemoryError:
    print("refused")
"""


def test_a_process_of_blocks_gets_no_more_memory_than_its_limit() -> None:
    ended = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    assert ended.stdout == "refused\n"


def test_a_process_of_blocks_that_dies_ends_its_session_and_no_other(float_package) -> None:
    tensors, others = features(float_package)[0], workers()
    with helper(float_package) as address, raw_client(address) as first, raw_client(address) as second:
        first.asked(network=network_message(float_package))
        (worker,) = workers() - others
        second.asked(network=network_message(float_package))
        os.kill(worker, signal.SIGKILL)
        error = first.refused(inference=inference(float_package, 1, 0, tensors))
        assert "ended by signal SIGKILL" in error.message
        assert second.asked(inference=inference(float_package, 1, 0, tensors)).answer.number == 1


def test_the_process_of_a_device_that_leaves_is_ended(float_package) -> None:
    others = workers()
    with helper(float_package) as address:
        with raw_client(address) as client:
            client.asked(network=network_message(float_package))
            assert len(workers() - others) == 1
        until(lambda: not workers() - others)


def test_new_sessions_get_the_blocks_of_a_package_that_was_replaced(float_package, tmp_path) -> None:
    old = network_message(float_package)
    request = inference(float_package, 1, 0, features(float_package)[0])
    with helper(float_package) as address, raw_client(address) as before:
        assert before.asked(network=old).ready.segment_ms
        float_package.rename(tmp_path / "earlier")
        shutil.copytree(DATA / "blocks_int8", float_package)
        with raw_client(address) as after:
            assert after.asked(network=network_message(float_package)).ready.segment_ms
        assert before.asked(inference=request).answer.tensors
        with raw_client(address) as late:
            assert late.refused(network=old).code is ErrorCode.NOT_FOUND


def test_a_replaced_package_that_cannot_be_lent_leaves_the_earlier_one(float_package) -> None:
    with helper(float_package) as address:
        old = network_message(float_package)
        (float_package / "manifest.json").write_text("{")
        with raw_client(address) as client:
            assert client.asked(network=old).ready.segment_ms


def test_a_package_without_blocks_cannot_be_lent() -> None:
    with pytest.raises(MistifyError, match='"blocks": true') as caught:
        LentPackages([Package.open(DATA / "exits")])
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_other_machines_need_a_token(float_package) -> None:
    with (
        pytest.raises(MistifyError, match="--token-file") as caught,
        helper(float_package, token=None, address="0.0.0.0:0"),
    ):
        pass
    assert caught.value.code is ErrorCode.UNAUTHENTICATED


def test_a_helper_with_a_certificate_speaks_tls(float_package, tmp_path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    packages = LentPackages([Package.open(float_package)])
    certificate = Certificate(chain, key)
    with serving(
        packages, Quotas(1, 100, LIMITS), "localhost:0", token=TOKEN, certificate=certificate
    ) as address:
        assert address.startswith("tls://")
        credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
        with grpc.secure_channel(address.removeprefix("tls://"), credentials) as channel:
            client = RawClient(channel, TOKEN)
            assert client.asked(network=network_message(float_package)).ready.segment_ms
            client.end()
