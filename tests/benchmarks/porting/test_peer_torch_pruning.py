"""The results of the comparison, and the correctness of the peer."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.porting.peer_torch_pruning import OURS, PEER, SHARES, TARGETS, Reached, figures_of, main
from executors.data import Dataset, split
from tests.benchmarks.porting.networks import resnet8


def rows(shares, ours=80.0, left=0.9):
    """Return a table in which every goal leaves this part of its share."""
    accuracies = {PEER: 76.0, OURS: ours}
    return {
        side: {share: Reached(accuracy, left * share, 900, {"training": 30.0}) for share in shares}
        for side, accuracy in accuracies.items()
    }


def test_margins_are_over_the_peer():
    figures = figures_of(rows(SHARES))

    assert {figures[f"margin_at_{share}"] for share in SHARES} == {4.0}
    assert figures["mean_margin"] == 4.0
    assert figures["shares_exceeded"] == 0


def test_a_part_of_the_shares_has_no_mean():
    assert "mean_margin" not in figures_of(rows(SHARES[:2]))


def test_networks_that_exceed_their_share_are_counted():
    assert figures_of(rows(SHARES, left=1.01))["shares_exceeded"] == 8


def test_every_target_has_a_result():
    assert TARGETS.keys() <= {"translation_difference", *figures_of(rows(SHARES))}


@pytest.mark.parametrize("arguments", [[], ["--data", "/nowhere"]])
def test_the_benchmark_is_skipped_without_data(arguments, monkeypatch, capsys):
    monkeypatch.delenv("MISTIFY_TEST_DATA", raising=False)

    assert main(["--quick", *arguments]) == 77
    assert "--data DIR" in capsys.readouterr().out


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (80, 32, 32, 3), np.uint8)
    return Dataset({"image": images}, {"class": rng.integers(0, 10, 80)})


@pytest.mark.slow
@pytest.mark.parametrize("ranking", ["within layers", "isomorphic"])
def test_the_peer_respects_its_share_and_keeps_the_classes(data, ranking):
    pytest.importorskip("torch_pruning", reason="needs the extra: pip install -e '.[peers]'")
    from benchmarks.porting import torch_pruner, torch_resnet8

    teacher = np.full((80, 10), 0.1, np.float32)
    taught = torch_pruner.Taught(teacher, teacher)
    source = resnet8()

    network = torch_pruner.pruned(
        source, 0.5, data, taught, steps=24, learning_rate=0.02, ranking=torch_pruner.Ranking(ranking), seed=0
    )

    images = torch_resnet8.tensors(data.inputs["image"])
    full = torch_resnet8.multiply_adds(torch_resnet8.translated(source), images)
    assert 0.3 * full < torch_resnet8.multiply_adds(network, images) <= 0.5 * full
    assert torch_resnet8.probabilities(network, images).shape == (80, 10)


@pytest.mark.slow
def test_the_peer_uses_the_best_learning_rate_on_validation_data():
    pytest.importorskip("torch_pruning", reason="needs the extra: pip install -e '.[peers]'")
    from benchmarks.porting import torch_pruner, torch_resnet8

    images = np.random.default_rng(0).integers(0, 256, (160, 32, 32, 3), np.uint8)
    source, zeros = resnet8(), np.zeros(160, np.int64)
    taught = torch_resnet8.probabilities(torch_resnet8.translated(source), torch_resnet8.tensors(images))
    train, validation = split(Dataset({"image": images}, {"class": taught.argmax(dim=1).numpy()}), 0.5)
    contrary = Dataset({"image": images}, {"class": zeros})
    peer = torch_pruner.Peer(source, train, validation, seed=0)
    rates = (1e6, 0.02)  # training diverges with the first rate, and NaN counts as class 0
    networks = [peer.cut(0.5, 24, rate).network for rate in rates]
    scores = [torch_resnet8.accuracy(network, validation) for network in networks]
    assert scores[0] < scores[1]
    assert torch_resnet8.accuracy(networks[0], contrary) > torch_resnet8.accuracy(networks[1], contrary)

    best = peer.best(0.5, 24, rates)

    assert best.rate == rates[1]
    assert torch_resnet8.accuracy(best.network, contrary) == torch_resnet8.accuracy(networks[1], contrary)
    assert 0.3 < best.share <= 0.5
    assert best.seconds > 0


def test_the_peer_is_distilled_from_the_source_on_augmented_images(data):
    torch = pytest.importorskip("torch", reason="needs the extra: pip install -e '.[peers]'")
    pytest.importorskip("torch_pruning", reason="needs the extra: pip install -e '.[peers]'")
    from benchmarks.porting import torch_pruner, torch_resnet8

    images = data.inputs["image"]
    of_left, of_right = (side.mean(axis=(1, 2, 3)) for side in (images[:, :, :16], images[:, :, 16:]))
    taught = torch_pruner.Taught(np.stack([of_left, of_right], 1), np.stack([of_right, of_left], 1))
    seen, _, said = next(torch_pruner._batches(data, taught, seed=0))
    sides = torch.stack([seen[..., :16].mean((1, 2, 3)), seen[..., 16:].mean((1, 2, 3))], 1)
    assert torch.allclose(sides, said.float(), atol=1e-3)
    whole = torch_resnet8.tensors(images).float()
    as_they_are = sum(bool((whole == image).flatten(1).all(1).any()) for image in seen)
    assert 16 < as_they_are < 48  # of 64


def test_momenta_of_remaining_channels_survive_a_cut():
    torch = pytest.importorskip("torch", reason="needs the extra: pip install -e '.[peers]'")
    pruning = pytest.importorskip("torch_pruning", reason="needs the extra: pip install -e '.[peers]'")
    from benchmarks.porting.torch_pruner import _Learner

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 6), torch.nn.ReLU(), torch.nn.Linear(6, 10))
    batch = torch.randn(4, 3), torch.tensor([0, 1, 2, 3]), torch.full((4, 10), 0.1)
    learner = _Learner(network, iter([batch] * 3), 0.1)
    learner.train(np.ones(3, np.float32))
    before = [learner._optimizer.state[layer.weight]["momentum_buffer"] for layer in (network[0], network[2])]

    group = (
        pruning.DependencyGraph()
        .build_dependency(network, batch[0])
        .get_pruning_group(network[0], pruning.prune_linear_out_channels, idxs=[1, 4])
    )
    learner.change(group.prune)

    after = [learner._optimizer.state[layer.weight]["momentum_buffer"] for layer in (network[0], network[2])]
    stay = [0, 2, 3, 5]
    assert torch.equal(after[0], before[0][stay])
    assert torch.equal(after[1], before[1][:, stay])
    assert float(after[0].abs().sum()) > 0
