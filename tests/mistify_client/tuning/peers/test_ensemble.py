"""The choice of teachers and their targets, compared with independent definitions; malicious peers."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from mistify.package.training import OutputEncoding
from mistify_client.tuning.peers.ensemble import Ensemble, agreement, judge

KINDS = {"scores": OutputEncoding.SOFTMAX}
CLASSES, COUNT = 5, 600


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.fixture
def targets():
    return {"scores": np.random.default_rng(0).integers(0, CLASSES, COUNT)}


def peer(targets, seed, skill=3.0, scale=1.0):
    """Return predictions from logits that are higher for the true class by `skill`, times `scale`."""
    noise = np.random.default_rng(seed).normal(size=(COUNT, CLASSES)) * 1.5
    return {"scores": softmax(scale * (noise + skill * np.eye(CLASSES)[targets["scores"]]))}


def judged(targets, peers):
    own = peer(targets, 99)
    return judge(peers, own, targets, KINDS, agreement(own, targets, KINDS))


@pytest.mark.parametrize("count", [1, 2, 4, 10])
def test_all_honest_peers_are_trusted(targets, count):
    peers = {str(seed): peer(targets, seed, 2 + seed / 10) for seed in range(count)}
    actual = judged(targets, peers)
    assert set(actual.trusted) == set(peers)
    assert not actual.left_out


@pytest.mark.parametrize("bad", [1, 2, 3])
@pytest.mark.parametrize("honest", [4, 7])
def test_peers_trained_on_random_labels_are_not_trusted(targets, honest, bad):
    """About 30 percent of the peers, with independent or identical predictions."""
    peers = {f"honest {seed}": peer(targets, seed) for seed in range(honest)}
    for seed in range(bad):
        peers[f"random {seed}"] = peer(targets, 50 + seed, skill=0)
        peers[f"same {seed}"] = peer(targets, 60, skill=0)
    assert set(judged(targets, peers).trusted) == {name for name in peers if name.startswith("honest")}


def test_a_peer_with_constant_predictions_is_not_trusted(targets):
    constant = {"scores": np.tile(np.eye(CLASSES)[1] * 0.9 + 0.02, (COUNT, 1))}
    actual = judged(targets, {"honest": peer(targets, 1), "constant": constant})
    assert actual.trusted == ("honest",)
    assert "classes" in actual.left_out["constant"]


def test_a_peer_that_permutes_classes_is_not_trusted(targets):
    wrong = {"scores": np.roll(peer(targets, 1)["scores"], 1, axis=1)}
    assert judged(targets, {"wrong": wrong, "right": peer(targets, 2)}).trusted == ("right",)


def test_a_peer_with_nan_outputs_is_left_out_first(targets):
    broken = {"scores": np.full((COUNT, CLASSES), np.nan)}
    peers = {"broken": broken, "a": peer(targets, 1), "b": peer(targets, 2)}
    actual = judged(targets, peers)
    assert actual.trusted == ("a", "b")
    assert actual.left_out["broken"] == "its outputs are not finite"


def test_scaled_logits_move_the_teacher_by_at_most_their_share(targets):
    honest = [peer(targets, seed) for seed in range(4)]
    scaled = peer(targets, 9, scale=1e6)
    rows = np.arange(COUNT)
    means = [
        np.mean([predicted["scores"] for predicted in some], axis=0) for some in (honest, [*honest, scaled])
    ]
    assert np.abs(means[1] - means[0]).max() <= 1 / 5
    actual = judged(targets, {str(at): predicted for at, predicted in enumerate([*honest, scaled])})
    assert set(actual.trusted) >= {"0", "1", "2", "3"}
    assert Ensemble([*honest, scaled])(np.random.default_rng(0))(rows)["scores"].max() <= 1


@pytest.mark.parametrize("count", [1, 2, 4, 9, 10, 20])
def test_a_tenth_of_the_peers_but_at_least_one_and_not_all_are_skipped(count):
    """Each peer predicts its own power of two, so that the sum shows which peers contributed."""
    predicted = [{"scores": np.full((3, 1), 2.0**at)} for at in range(count)]
    expected = count - min(count - 1, max(count // 10, 1))
    seen = set()
    for seed in range(20):
        lesson = Ensemble(predicted)(np.random.default_rng(seed))
        total = lesson(np.array([0, 2]))["scores"] * expected
        assert total.shape == (2, 1)
        assert total[0, 0].astype(int).item().bit_count() == expected
        seen.add(total[0, 0].item())
    assert count == 1 or len(seen) > 1


def test_agreement_is_cohens_kappa(targets):
    predicted = peer(targets, 5, skill=1)
    named = predicted["scores"].argmax(1)
    assert agreement(predicted, targets, KINDS) == pytest.approx(cohen_kappa_score(named, targets["scores"]))
    positions = {"scores": np.where(np.arange(COUNT) % 3, targets["scores"], -1)}
    counted = positions["scores"] >= 0
    expected = cohen_kappa_score(named[counted], targets["scores"][counted])
    assert agreement(predicted, positions, KINDS) == pytest.approx(expected)


def test_agreement_on_binary_labels_and_on_numbers():
    truth = np.random.default_rng(1).integers(0, 2, (50, 1))
    predicted = np.clip(truth * 0.6 + np.random.default_rng(2).uniform(0, 0.5, (50, 1)), 0, 1)
    expected = cohen_kappa_score((predicted > 0.5).ravel(), truth.ravel())
    assert agreement({"y": predicted}, {"y": truth}, {"y": OutputEncoding.SIGMOID}) == pytest.approx(expected)
    assert agreement({"y": predicted}, {"y": truth}, {"y": OutputEncoding.FIGURES}) == 0


def test_numbers_far_from_those_of_other_peers_are_left_out():
    truth = np.random.default_rng(0).normal(size=(100, 1))
    noisy = lambda seed: {"y": truth + np.random.default_rng(seed).normal(size=(100, 1)) * 0.1}  # noqa: E731
    peers = {str(seed): noisy(seed) for seed in range(4)} | {"off": {"y": truth + 5}}
    actual = judge(peers, noisy(9), {"y": truth}, {"y": OutputEncoding.FIGURES}, 0.0)
    assert set(actual.trusted) == {"0", "1", "2", "3"}


TRUTH = np.random.default_rng(0).normal(size=(100, 1))


def judged_figures(own, **peers):
    """Judge peers with given offsets from the truth, by an own network with such an offset."""
    predicted = {name: {"y": TRUTH + np.float64(off)} for name, off in peers.items()}
    return judge(predicted, {"y": TRUTH + np.float64(own)}, {"y": TRUTH}, {"y": OutputEncoding.FIGURES}, 0.0)


@pytest.mark.parametrize(("off", "trusted"), [(1.9, True), (2.1, False)])
def test_a_peer_more_than_twice_as_far_as_usual_is_left_out(off, trusted):
    judgement = judged_figures(0, a=-1, b=1, c=-1, d=1, below=-off, above=off)
    assert judgement.trusted == (*"abcd", *(("below", "above") if trusted else ()))


def test_a_peer_far_from_otherwise_identical_peers_is_left_out():
    """The median distance between peers is zero, so that the own network determines the scale."""
    actual = judged_figures(0.1, a=0, b=0, c=0, d=0, near=0.15, off=1e6)
    assert actual.trusted == ("a", "b", "c", "d", "near")
    assert "10000000.0 times as far" in actual.left_out["off"]


def test_a_peer_that_differs_from_the_identical_majority_and_the_own_network_is_left_out():
    actual = judged_figures(0, a=0, b=0, c=0, off=1e6)
    assert actual.trusted == ("a", "b", "c")
    assert actual.left_out == {
        "off": "this device and most peers predict the same, and it predicts something else"
    }
    assert not judged_figures(0, a=0, b=0).left_out
