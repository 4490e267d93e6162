"""Predictions of peers: computed once, and only from verified packages."""

import shutil
import signal
import struct
from dataclasses import replace
from multiprocessing import get_context

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import PackageFile
from mistify.package.manifest import MANIFEST, Manifest
from mistify.package.records import describe_file
from mistify.package.weights import write_weights
from mistify.peers.membership import PackageReference, Peer
from mistify_client.examples import Examples
from mistify_client.rpc.download import download_package
from mistify_client.rpc.peer_files import PeerFile
from mistify_client.runtime.interpreter import NETWORK
from mistify_client.tuning.examples import split
from mistify_client.tuning.peers.models import PeerModels, PeerOutputs
from mistify_client.tuning.peers.teachers import Teachers
from mistify_client.tuning.trainer import load_trainer
from tests.mistify_client.tuning.devices import examples
from tests.support.disks import files_limited_to

COUNT = 150


class Fetched:
    """A fake download that copies packages and counts calls."""

    def __init__(self, data):
        self.data = data
        self.count = 0

    def __call__(self, reference, directory):
        self.count += 1
        source = {"half": "trainable", "third": "trainable_narrow", "other": "other"}[reference.goal_id]
        shutil.copytree(self.data / source, directory, dirs_exist_ok=True)


@pytest.fixture
def fetched(data):
    return Fetched(data)


@pytest.fixture
def packages(data, tmp_path, fetched):
    return PeerModels(tmp_path / "packages", Manifest.load(data / "trainable"), fetched)


@pytest.fixture
def outputs(tmp_path):
    return PeerOutputs(tmp_path / "outputs" / "these", examples(1, COUNT))


@pytest.fixture
def peer(data, tmp_path, device):
    """Return a function that makes peers with the weights of the packages, or tuned ones, times a factor."""

    def make(number, factor=1.0, spoil=lambda content: content, tuned=False):
        own = device(number)
        version = own.tune().version if tuned else own.package
        trained = load_trainer(version).weights()
        weights = {name: values * np.float32(factor) for name, values in trained.items()}
        path = tmp_path / f"{number}-{factor}.weights"
        path.write_bytes(spoil(write_weights(weights)))
        manifest = Manifest.load(own.package)
        package = PackageReference(manifest.job, manifest.goal, manifest.files["serve.tflite"].sha256)
        file = describe_file(path)
        actual = Peer(f"{number}", package, 1, 0.5, 0.5, 0.1, file.size, file.sha256)
        return PeerFile(actual, path), own

    return make


@pytest.mark.parametrize("number", [0, 1])
def test_predictions_are_those_of_the_network_with_the_weights_of_the_peer(peer, outputs, packages, number):
    file, own = peer(number)
    key = outputs.compute(file, packages)
    actual = outputs.read(key, Manifest.load(own.package))["scores"]
    trainer = own.trainer()
    trainer.restore({name: values.astype(np.float16) for name, values in trainer.weights().items()})
    np.testing.assert_allclose(actual, trainer.infer(examples(1, COUNT).inputs)["scores"], atol=1e-5)


def test_nothing_is_computed_or_downloaded_twice(peer, outputs, packages, fetched, monkeypatch):
    file, _ = peer(1)
    key = outputs.compute(file, packages)
    monkeypatch.setattr("mistify_client.tuning.peers.models.Network", None)
    assert outputs.compute(file, packages) == key
    monkeypatch.undo()
    other, _ = peer(3, 1.1)
    assert outputs.compute(other, packages) != key
    assert fetched.count == 1


class Ending(Examples):
    """Examples that send the process a signal after the first chunk."""

    by = signal.SIGINT

    def chunks(self, size):
        yield next(super().chunks(size))
        signal.raise_signal(self.by)


class Killing(Ending):
    by = signal.SIGKILL


def below(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_an_interrupted_computation_leaves_no_files(peer, packages, tmp_path):
    own = examples(1, COUNT)
    outputs = PeerOutputs(tmp_path / "outputs" / "these", Ending(own.inputs, own.targets))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # earlier tests may have set a handler
    try:
        with pytest.raises(KeyboardInterrupt):
            outputs.compute(peer(0)[0], packages)
    finally:
        signal.signal(signal.SIGINT, before)
    assert below(tmp_path / "outputs") == ["these"]


def test_files_of_a_killed_process_are_removed(peer, outputs, packages, tmp_path):
    own = examples(1, COUNT)
    killed = PeerOutputs(tmp_path / "outputs" / "these", Killing(own.inputs, own.targets))
    process = get_context("spawn").Process(target=killed.compute, args=[peer(0)[0], packages])
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert any(path.endswith(".npy") for path in below(tmp_path / "outputs"))
    key = outputs.compute(peer(1)[0], packages)
    assert below(tmp_path / "outputs") == ["these", f"these/{key}", f"these/{key}/0.npy"]


def test_a_failed_write_is_reported_and_leaves_no_files(peer, outputs, packages, tmp_path):
    file, _ = peer(0)
    packages.get(file.peer.package)
    reported = r"these cannot be written \(File too large\); free space"
    with pytest.raises(MistifyError, match=reported) as caught, files_limited_to(1000):
        outputs.compute(file, packages)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert below(tmp_path / "outputs") == ["these"]
    assert outputs.has(outputs.compute(file, packages))


def test_only_predictions_in_use_are_kept(peer, outputs, packages, tmp_path):
    keys = [outputs.compute(peer(number)[0], packages) for number in (0, 1)]
    (tmp_path / "outputs" / "of data before").mkdir()
    outputs.keep([keys[1]])
    assert [outputs.has(key) for key in keys] == [False, True]
    assert [path.name for path in (tmp_path / "outputs").iterdir()] == ["these"]


def test_only_packages_of_present_peers_are_kept(peer, outputs, packages, device, tmp_path):
    data = split(examples(1, COUNT), 0.1, 8)
    teachers = Teachers(device(4).trainer(), data, outputs, packages)
    first, second = peer(0)[0], peer(1)[0]
    teachers.gather([first, second])
    assert len(list((tmp_path / "packages").iterdir())) == 2
    teachers.gather([second])
    (kept,) = (tmp_path / "packages").iterdir()
    assert describe_file(kept / NETWORK).sha256 == second.peer.package.sha256
    teachers.gather([])
    assert not list((tmp_path / "packages").iterdir())


def test_peers_are_not_left_out_because_the_server_has_no_access_to_packages(
    peer, outputs, device, data, tmp_path
):
    def fetch(reference, directory):
        raise MistifyError(ErrorCode.STORE_REFUSED, "it has refused access")

    packages = PeerModels(tmp_path / "packages", Manifest.load(data / "trainable"), fetch)
    teachers = Teachers(device(4).trainer(), split(examples(1, COUNT), 0.1, 8), outputs, packages)
    with pytest.raises(MistifyError, match="it has refused access"):
        teachers.gather([peer(0)[0]])


def test_a_package_that_is_not_the_tuned_one_is_refused(peer, packages):
    file, _ = peer(0)
    with pytest.raises(MistifyError, match="not the one") as caught:
        packages.get(replace(file.peer.package, sha256="0" * 64))
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE


class BrokenOff:
    """A fake download that copies packages, and breaks off the first one before the manifest."""

    def __init__(self, data):
        self.source = data / "trainable"
        self.read = []

    def __call__(self, reference, directory):
        def read_from(name, offset):
            broken = MANIFEST in name and not self.read.count(name)
            self.read.append(name)
            if broken:
                raise MistifyError(ErrorCode.UNAVAILABLE, "connection reset")
            yield (self.source / name).read_bytes()[offset:]

        described = ((name, describe_file(self.source / name)) for name in (NETWORK, MANIFEST))
        files = [PackageFile(name, actual.size, actual.sha256) for name, actual in described]
        download_package(files, directory, read_from)


def test_an_interrupted_download_is_resumed(data, tmp_path, peer):
    reference, fetch = peer(0)[0].peer.package, BrokenOff(data)
    packages = PeerModels(tmp_path / "packages", Manifest.load(data / "trainable"), fetch)
    with pytest.raises(MistifyError, match="connection reset"):
        packages.get(reference)
    manifest, network = packages.get(reference)
    assert manifest == Manifest.load(data / "trainable")
    assert network == (data / "trainable" / NETWORK).read_bytes()
    assert fetch.read == [NETWORK, MANIFEST, MANIFEST]


def test_a_package_too_large_for_the_disk_leaves_no_files(data, tmp_path, peer):
    """The disk space is needed for the tuned version."""
    reference, fetch = peer(0)[0].peer.package, BrokenOff(data)
    packages = PeerModels(tmp_path / "packages", Manifest.load(data / "trainable"), fetch)
    reported = r"packages/\w+ cannot be written \(File too large\); free space"
    with pytest.raises(MistifyError, match=reported) as caught, files_limited_to(1000):
        packages.get(reference)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert not list((tmp_path / "packages").glob("*/*"))


@pytest.mark.parametrize("spoilt", [NETWORK, MANIFEST])
def test_a_package_damaged_later_is_downloaded_again(peer, packages, fetched, tmp_path, spoilt):
    reference = peer(0)[0].peer.package
    actual = packages.get(reference)
    (path,) = (tmp_path / "packages").glob(f"*/{spoilt}")
    path.write_bytes(path.read_bytes()[:-9])
    assert packages.get(reference) == actual
    assert fetched.count == 2


def test_a_package_with_other_outputs_is_refused(data, tmp_path):
    other = shutil.copytree(data / "trainable", tmp_path / "other")
    manifest = Manifest.load(other)
    renamed = tuple(info.model_copy(update={"name": "other"}) for info in manifest.outputs)
    manifest.model_copy(update={"outputs": renamed}).save(other)
    packages = PeerModels(tmp_path / "packages", Manifest.load(data / "trainable"), Fetched(tmp_path))
    digest = manifest.files["serve.tflite"].sha256
    with pytest.raises(MistifyError) as caught:
        packages.get(PackageReference("job-1", "other", digest))
    assert caught.value.code is ErrorCode.INVALID_MODEL


def test_unusable_peers_are_left_out_with_the_reason(peer, outputs, packages, device):
    """One peer is truncated, one has NaN (which the coordinator should have refused), and one is valid."""
    own = device(0)
    good, cut = peer(2, tuned=True)[0], peer(1, 1.0, lambda content: content[:-9])[0]
    broken = peer(3, float("nan"))[0]
    data = split(examples(1, COUNT), 0.1, 8)
    gathered = Teachers(own.trainer(), data, outputs, packages).gather([cut, good, broken])
    assert gathered.teachers == (outputs.key(good.peer),)
    assert [note.split(":")[0] for note in gathered.notes] == [
        "the peer 1 is left out", "the peer 3 is left out",
    ]  # fmt: skip
    assert "cut off" in gathered.notes[0]
    assert "NaN" in gathered.notes[1]


@pytest.fixture(params=[("BROADCAST_TO", "Didn't find op"), ("TRANSPOSE_CONV", "failed to prepare")])
def unrunnable_peer(request, peer, fetched, tmp_path):
    """Return a peer with another operator instead of a convolution, and LiteRT's error message.

    LiteRT lacks one operator in this version, and the other one needs other inputs.
    """
    operator, reason = request.param
    fetched.data = shutil.copytree(fetched.data, tmp_path / "server")
    path = fetched.data / "trainable_narrow" / NETWORK
    content = bytearray(path.read_bytes())
    table = schema.Model.GetRootAs(content, 0).OperatorCodes(0)._tab
    builtin_code = table.Pos + table.Offset(10)
    struct.pack_into("<i", content, builtin_code, getattr(schema.BuiltinOperator, operator))
    path.write_bytes(content)
    manifest = Manifest.load(path.parent)
    manifest.model_copy(update={"files": manifest.files | {NETWORK: describe_file(path)}}).save(path.parent)
    file, _ = peer(1)
    package = replace(file.peer.package, sha256=describe_file(path).sha256)
    return replace(file, peer=replace(file.peer, package=package)), reason


def test_a_peer_with_a_network_that_does_not_run_is_left_out(
    unrunnable_peer, peer, outputs, packages, device
):
    (file, reason), own, good = unrunnable_peer, device(0), peer(2, tuned=True)[0]
    data = split(examples(1, COUNT), 0.1, 8)
    gathered = Teachers(own.trainer(), data, outputs, packages).gather([file, good])
    assert gathered.teachers == (outputs.key(good.peer),)
    (note,) = gathered.notes
    assert note.startswith("the peer 1 is left out: the network of the goal third cannot be used: ")
    assert reason in note
    with pytest.raises(MistifyError) as caught:
        outputs.compute(file, packages)
    assert caught.value.code is ErrorCode.INVALID_PUBLICATION
