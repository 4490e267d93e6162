"""What the figures of the comparison say, and that the peer does what is asked of it."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="needs the extra: pip install -e '.[bench]'")

from benchmarks.peer_torch_pruning import LABELS, OURS, SHARES, TARGETS, TAUGHT, Reached, figures_of, main
from executors.data import Dataset
from tests.benchmarks.networks import resnet8


def rows(shares, ours=80.0, left=0.9):
    """A table in which every goal leaves this part of its share."""
    accuracies = {LABELS: 76.0, TAUGHT: 78.0, OURS: ours}
    return {
        side: {share: Reached(accuracy, left * share, 900, {"training": 30.0}) for share in shares}
        for side, accuracy in accuracies.items()
    }


def test_margins_are_over_the_peer_that_learns_from_labels():
    figures = figures_of(rows(SHARES))

    assert {figures[f"margin_at_{share}"] for share in SHARES} == {4.0}
    assert figures["mean_margin"] == 4.0
    assert figures["shares_exceeded"] == 0


def test_part_of_the_shares_has_no_mean():
    assert "mean_margin" not in figures_of(rows(SHARES[:2]))


def test_networks_above_their_share_are_counted():
    assert figures_of(rows(SHARES, left=1.01))["shares_exceeded"] == 12


def test_all_targets_are_among_the_figures():
    assert TARGETS.keys() <= {"translation_difference", *figures_of(rows(SHARES))}


@pytest.mark.parametrize("arguments", [[], ["--data", "/nowhere"]])
def test_is_skipped_without_data(arguments, monkeypatch, capsys):
    monkeypatch.delenv("MISTIFY_TEST_DATA", raising=False)

    assert main(["--quick", *arguments]) == 77
    assert "--data DIR" in capsys.readouterr().out


@pytest.mark.parametrize("taught", [False, True])
def test_peer_keeps_to_its_share_and_keeps_the_classes(taught):
    pytest.importorskip("torch_pruning", reason="needs the extra: pip install -e '.[peers]'")
    from benchmarks import torch_pruner, torch_resnet8

    rng = np.random.default_rng(0)
    data = Dataset(
        {"image": rng.integers(0, 256, (80, 32, 32, 3), np.uint8)}, {"class": rng.integers(0, 10, 80)}
    )
    teacher = np.full((80, 10), 0.1, np.float32) if taught else None
    source = resnet8()

    network = torch_pruner.pruned(source, 0.5, data, teacher, steps=24, seed=0)

    images = torch_resnet8.tensors(data.inputs["image"])
    full = torch_resnet8.multiply_adds(torch_resnet8.translated(source), images)
    assert 0.3 * full < torch_resnet8.multiply_adds(network, images) <= 0.5 * full
    assert torch_resnet8.probabilities(network, images).shape == (80, 10)
