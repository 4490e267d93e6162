"""Complete tuning sessions with a real coordinator and injected faults."""

import json
import re
import shutil
import subprocess
import sys
from time import monotonic

import numpy as np
import pytest

import mistify_client
from benchmarks.tuning import fleet
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.package.verification import verify
from mistify.package.weights import write_weights
from mistify.peers.hints import Hints
from mistify.peers.membership import MemberKey, PackageReference
from mistify_client.rpc.retry import Backoff
from mistify_client.rpc.tuning import TuningClient, describe
from mistify_client.runtime.versions import current
from mistify_client.tuning import TrainingSettings, session
from tests.mistify_client.coordinators import running
from tests.mistify_client.tuning.devices import examples
from tests.support.disks import files_limited_to
from tests.support.paths import DATA, REPOSITORY

DOCUMENTATION = (REPOSITORY / "docs" / "tuning.md").read_text()


def accuracy(package, held_out):
    """Return the served accuracy of the current version."""
    predicted = mistify_client.load(package)(held_out.inputs["image"])
    return float(np.mean(predicted.argmax(1) == held_out.targets["scores"]))


def stranger(address, number, weights, goal="half", data="trainable"):
    """Add a member that has published these weights for a package."""
    manifest = Manifest.load(DATA / data)
    package = PackageReference("job-1", goal, manifest.files["serve.tflite"].sha256)
    key = MemberKey(fleet.GROUP, bytes([number]) * 32)
    content = write_weights(weights)
    with TuningClient(address) as client:
        client.join(key)
        hints = Hints(view_degrees=float(number))
        client.publish(
            key, describe(package, content, version=1, loss=0.5, accuracy=0.5, hints=hints), content
        )
    return key


def test_tuning_without_peers_improves_a_package_and_running_models_switch_to_it(device):
    alone = device(0)
    model = mistify_client.load(alone.package, threads=1)
    test = examples(7, 300)
    before = accuracy(alone.package, test)
    outcome = alone.tune()
    assert outcome.ended.loss < outcome.began.loss
    assert outcome.version == current(alone.package) != alone.package
    manifest = verify(outcome.version)
    assert manifest.tuned_from == Manifest.load(alone.package).files["serve.tflite"].sha256
    assert manifest.accuracy == outcome.ended.accuracy
    assert accuracy(alone.package, test) > before + 0.2
    deadline = monotonic() + 60
    while not model.manifest.tuned_from and monotonic() < deadline:  # loaded in the background
        model(test.inputs["image"][:1])
    assert model.manifest == manifest
    assert (outcome.rounds, outcome.notes, outcome.traffic.sent) == (0, (), 0)


def test_a_tuned_version_can_be_tuned_further(device):
    alone = device(0)
    first = alone.tune()
    second = alone.tune()
    assert second.began == pytest.approx(first.ended, rel=1e-4)
    assert second.ended.loss <= second.began.loss
    ported = alone.trainer().weights()
    again = mistify_client.load_trainer(current(alone.package))
    for name, values in ported.items():
        np.testing.assert_array_equal(again.ported[name], values)
    assert Manifest.load(current(alone.package)).tuned_from == Manifest.load(first.version).tuned_from


def test_a_package_that_cannot_be_improved_is_not_changed(device):
    """At this learning rate, every step destroys the network."""
    alone = device(0)
    outcome = alone.tune(settings=TrainingSettings(learning_rate=1e6, patience=2, most_passes=4))
    assert outcome.ended == outcome.began
    assert outcome.version is None
    assert current(alone.package) == alone.package


def test_devices_of_other_architectures_learn_from_each_other(address, device):
    first, second, third = device(0), device(1), device(2)
    alone = first.tune(address)
    assert alone.rounds == 0
    assert alone.notes == ("there are no peers to learn from yet",)
    outcome = second.tune(address)
    assert outcome.rounds >= 1
    assert outcome.notes == ()
    assert outcome.ended.loss <= outcome.began.loss
    both = third.tune(address, count=2)
    assert both.rounds >= 1
    assert len(list((third.state / "packages").iterdir())) == 2
    assert both.traffic.sent > 1_000
    assert 2 * 1_000 < both.traffic.received < 40_000  # weights and networks of both, no train.tflite


def test_weights_with_nan_or_an_excessive_norm_are_refused_by_the_coordinator(address, device, store):
    """Tuning continues with the other peer."""
    own, peer = device(0), device(1)
    peer.tune(address)
    weights = own.trainer().weights()
    with pytest.raises(MistifyError, match="NaN"):
        stranger(address, 3, {name: values * np.float32("nan") for name, values in weights.items()})
    broken = {name: values * np.float32(0.9) for name, values in weights.items()}
    broken["scores/bias"] = np.float32([1e4, -1e4, 0])
    tunable = Manifest.load(own.package).tunable
    assert tunable["scores/bias"].norm < 1
    with pytest.raises(MistifyError, match="norm"):
        stranger(address, 3, broken)
    outcome = own.tune(address)
    assert outcome.rounds >= 1


def test_an_untrained_peer_is_left_out(address, device):
    own = device(0)
    for number in (1, 3, 5):
        device(number).tune(address)
    random = np.random.default_rng(0)
    guesses = {
        name: random.permutation(values.ravel()).reshape(values.shape) * np.float32(-1)
        for name, values in own.trainer().weights().items()
    }
    key = stranger(address, 2, guesses)
    outcome = own.tune(address, count=4)
    assert [note for note in outcome.notes if key.member in note]
    assert outcome.rounds >= 1
    assert all(key.member in note for note in outcome.notes)


def test_without_a_server_a_device_tunes_without_peers_and_says_so(device):
    own = device(0)
    outcome = own.tune("127.0.0.1:1")
    assert outcome.version is not None
    assert outcome.rounds == 0
    assert "the server cannot be reached" in outcome.notes[0]
    assert "continuing without peers" in outcome.notes[1]


def test_losing_the_server_only_skips_the_rounds_with_peers(store, device, monkeypatch):
    own = device(0)
    with running(store) as address:
        device(1).tune(address)
    leaving = running(store)
    address = leaving.__enter__()
    publish = session.Exchange.publish

    def last(self, weights, score):
        publish(self, weights, score)
        leaving.__exit__(None, None, None)

    monkeypatch.setattr(session.Exchange, "publish", last)
    outcome = own.tune(address)
    assert outcome.rounds == 0
    assert "continuing without peers" in outcome.notes[0]
    assert outcome.version is not None


def test_without_space_for_the_weights_of_peers_a_device_tunes_without_them_and_says_so(
    address, device, monkeypatch
):
    """Their partial files are removed, because the tuned version needs the space."""
    own = device(0)
    device(1).tune(address)
    peers = session.Exchange.peers

    def without_room(self):
        with files_limited_to(100):
            return peers(self)

    monkeypatch.setattr(session.Exchange, "peers", without_room)
    outcome = own.tune(address)
    assert outcome.rounds == 0
    full = f"{own.state / 'weights'} cannot be written (File too large); free space"
    assert outcome.notes[0].startswith(f"continuing without peers: {full}")
    assert outcome.version is not None
    assert not list((own.state / "weights").iterdir())


@pytest.mark.parametrize(
    ("change", "code", "reported"),
    [
        ({"hints": Hints()}, ErrorCode.INVALID_PUBLICATION, "hints.view_degrees"),
        ({"group": "lions"}, ErrorCode.NOT_FOUND, "lions"),
    ],
)
def test_refusals_of_the_group_are_reported_before_training(address, device, change, code, reported):
    own = device(0)
    peering = session.Peering(**{"server": address, "group": fleet.GROUP, "hints": Hints(), **change})
    with pytest.raises(MistifyError, match=reported) as caught:
        session.tune(own.package, own.examples, peering)
    assert caught.value.code is code
    assert not (own.state / "progress.safetensors").exists()


@pytest.mark.parametrize("scales", [json.loads(*re.findall("--scales '(.*?)'", DOCUMENTATION))])
def test_the_example_in_the_documentation_tunes_with_its_group(address, device, tmp_path):
    (example,) = re.findall("```python\n(.*?)```", DOCUMENTATION, re.DOTALL)
    own = device(0, count=60)
    shutil.copytree(own.package, tmp_path / "out" / "goals" / "phone")
    np.savez(tmp_path / "mine.npz", x=own.examples.inputs["image"], y=own.examples.targets["scores"])
    command = [sys.executable, "-c", example.replace("host:7465", address)]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "there are no peers to learn from yet" in done.stdout


def test_a_member_renews_its_membership_while_it_trains(address, device, tmp_path):
    """On a simulated clock; members join at most every 15 minutes."""
    now = [0.0]
    digest = Manifest.load(device(0).package).files["serve.tflite"].sha256
    peering = session.Peering(address, fleet.GROUP, Hints(view_degrees=1.0), backoff=Backoff(attempts=0))
    package = PackageReference("job-1", "half", digest)
    with session.Exchange(peering, b"a" * 32, package, tmp_path, clock=lambda: now[0]) as exchange:
        sent = []
        for now[0] in (100, 899, 900, 1700, 1900, 9000):
            exchange.renew_lease()
            sent.append(exchange.traffic.sent)
    assert [b > a for a, b in zip([0, *sent], sent, strict=False)] == [False, False, True, False, True, True]
    with session.Exchange(
        session.Peering("127.0.0.1:1", "x", backoff=Backoff(attempts=0)),
        b"a" * 32,
        package,
        tmp_path,
        clock=lambda: now[0],
    ) as away:
        now[0] += 1000
        away.renew_lease()


def test_files_that_depend_on_the_data_are_readable_only_by_the_owner(device):
    own = device(0)
    own.tune(settings=TrainingSettings(learning_rate=0.01, most_passes=1))
    assert own.state.stat().st_mode & 0o077 == 0
