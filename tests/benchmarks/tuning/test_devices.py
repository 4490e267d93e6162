"""Results of the benchmarks of tuning with peers, and the split of images."""

import math
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.harness.worker import FILES
from benchmarks.tuning import accuracy, adversaries, communication, convergence, devices
from benchmarks.tuning.devices import DEVICES, lab, peers_of, skewed
from benchmarks.tuning.run import Run, _weights, scaled
from mistify.peers.membership import PackageReference, Peer
from mistify_client.rpc.connection import Traffic
from mistify_client.rpc.peer_files import PeerFile


def a_run(accuracy, curve=(), trusted=4):
    return Run(accuracy, accuracy, 0.1, 0.1, tuple(curve), 10, trusted, 1.0, 100)


@pytest.mark.parametrize(("peers", "closed"), [(30, 0.0), (36, 0.5), (42, 1.0), (27, -0.25)])
def test_useful_peers_close_a_share_of_the_gap_and_useless_ones_none(peers, closed):
    rounds = {"4 peers": [99.0, 99.0], "round 2": [peers - 1, peers + 1]}
    by_data = {"random": {"alone": [28.0, 32.0], "pooled": [40.0, 44.0], **rounds}}
    figures = accuracy.figures_of(by_data)
    assert figures["random_gap"] == pytest.approx(12)
    assert figures["random_gap_closed"] == pytest.approx(closed)


def test_noise_has_its_own_shares_and_other_test_data_has_none():
    of = {"alone": [30.0], "pooled": [50.0], "4 peers": [40.0], "4 peers, epsilon 16": [35.0]}
    figures = accuracy.figures_of({"dirichlet": of, "dirichlet_own": {"alone": [53.0]}})
    assert figures["dirichlet_gap_closed"] == pytest.approx(0.5)
    assert figures["dirichlet_gap_closed_by_4_peers_epsilon_16"] == pytest.approx(0.25)
    assert "dirichlet_own_gap" not in figures


def test_results_of_seeds_are_means_by_device():
    seeds = [{"random": {"alone": [30.0, 40.0]}}, {"random": {"alone": [34.0, 42.0]}}]
    assert accuracy.over_seeds(seeds) == {"random": {"alone": [32.0, 41.0]}}


def test_steps_are_counted_until_the_final_accuracy_of_tuning_alone():
    single = convergence.mean_curve([a_run(0.4, [0.2, 0.3, 0.4]), a_run(0.3, [0.3])])
    assert single.tolist() == pytest.approx([10, 25, 30, 35])
    together = np.array([10, 20, 36, 36])
    figures = convergence.figures_of(single, together, 10)
    assert (figures["steps_alone"], figures["steps_with_peers"], figures["fewer_steps"]) == (30, 20, 1.5)


def test_a_curve_that_never_reaches_it_takes_infinitely_many_steps():
    single, together = np.array([10.0, 35.0]), np.array([10.0, 20.0])
    figures = convergence.figures_of(single, together, 10)
    assert figures["steps_with_peers"] == math.inf
    assert figures["fewer_steps"] == 0


def test_steps_cannot_be_compared_if_tuning_alone_gains_nothing():
    figures = convergence.figures_of(np.array([30.0, 30.0]), np.array([30.0, 34.0]), 10)
    assert (figures["steps_alone"], figures["steps_with_peers"]) == (0, 0)
    assert math.isnan(figures["fewer_steps"])


@pytest.mark.parametrize("without", range(3))
def test_one_incomparable_seed_makes_the_result_incomparable(monkeypatch, without):
    gains, nothing = np.array([10.0, 20.0, 30.0]), np.array([10.0, 10.0, 10.0])
    together = np.array([10.0, 30.0, 30.0])
    monkeypatch.setattr(
        convergence, "_curves", lambda _, seed: (nothing if seed == without else gains, together, 10)
    )
    figures = convergence.measure(Namespace(seeds=range(3), quick=False, picture=None))
    assert math.isnan(figures["fewer_steps"])
    assert figures["steps_alone"] == 20


def test_gains_from_honest_peers_and_losses_to_hostile_ones_are_in_points():
    runs = {
        "alone": [a_run(0.5, trusted=0), a_run(0.44, trusted=0)],
        "4 peers": [a_run(0.5)] * 2,
        "random labels": [a_run(0.4), a_run(0.5, trusted=6)],
        "scaled logits": [a_run(0.6)] * 2,
    }
    figures = adversaries.figures_of(runs)
    assert figures["honest_gained"] == pytest.approx(3)
    assert figures["random_labels_lost"] == pytest.approx(5)
    assert figures["random_labels_trusted"] == 5
    assert figures["scaled_logits_lost"] == pytest.approx(-10)


def test_communication_is_relative_to_training_time():
    ratios = communication.ratios_of({1: 10**6, 2: 3 * 10**6}, 10.0)
    assert ratios[1] == pytest.approx([0.1, 0.3])
    assert ratios[50] == pytest.approx([0.002, 0.006])


class FakeExchange:
    """An exchange with a coordinator that has the weights of some peers, two for each package."""

    traffic = Traffic(sent=100, received=20)

    def __init__(self, peers):
        self.packages = [PackageReference("job", str(number // 2), "") for number in range(peers)]
        self.fetched = []

    def publish(self, weights, score):
        self.published = weights

    def peers(self):
        return [PeerFile(Peer("", package, 1, 0.0, 0.0, 0.0, 0, ""), Path()) for package in self.packages]

    def fetch(self, package, directory):
        self.fetched.append(directory.name)

    def leave(self):
        self.packages = []


def test_a_round_downloads_the_weights_of_all_peers_and_each_network_once():
    exchange = FakeExchange(peers=3)
    assert communication._round(exchange, 3, {}, Path("networks")) == 120
    assert sorted(exchange.fetched) == ["0", "1"]


@pytest.mark.parametrize("peers", [0, 2])
def test_a_round_with_too_few_peers_is_an_error(peers):
    with pytest.raises(RuntimeError, match=f"of {peers} peers; expected 3"):
        communication._round(FakeExchange(peers), 3, {}, Path("networks"))


def test_quick_and_full_runs_share_no_files(tmp_path, monkeypatch):
    for file in FILES:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    monkeypatch.setattr(devices, "_prepare", lambda *_: None)
    options = Namespace(data=tmp_path, work=tmp_path / "work")

    with lab(options, 1, short=True) as short, lab(options, 1, short=False) as full:
        assert short.work != full.work


def test_every_image_belongs_to_one_device_and_classes_are_skewed():
    classes = np.random.default_rng(0).integers(0, 10, 2_000)
    parts = skewed(classes, 100)
    assert sorted(np.concatenate(parts)) == list(range(2_000))
    assert min(map(len, parts)) >= 100
    shares = np.array([np.bincount(classes[part], minlength=10) / len(part) for part in parts])
    assert shares.max() > 0.3  # a tenth if classes are equally frequent


def test_no_device_is_its_own_peer():
    for device in range(DEVICES):
        assert sorted(peer.device for peer in peers_of(device, 4, "random")) == [
            number for number in range(DEVICES) if number != device
        ]


def test_only_the_last_layer_is_scaled():
    weights = {"scores/kernel": np.ones(2, np.float32), "scores2/kernel": np.ones(2, np.float32)}
    result = scaled(weights, "scores", 8.0)
    assert (result["scores/kernel"][0], result["scores2/kernel"][0]) == (8, 1)


def test_own_accuracy_counts_classes_as_often_as_the_device_has_them():
    """All images of class 0 are right, half of the test data and a quarter of the device's images."""
    tested = np.array([0] * 5 + list(range(1, 10)))
    own = np.array([0] * 9 + [1] * 3 + [2] * 24)
    assert _weights(tested, own) @ (tested == 0) == pytest.approx(0.25)
    assert _weights(tested, own).sum() == pytest.approx(1)
