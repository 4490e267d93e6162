"""The results of `elastic.families` from those of its runs, and its parts on a small network."""

import numpy as np
import pytest

from benchmarks.elastic import families
from benchmarks.elastic.families import Family, Run, Side, figures_of
from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.contract.assignment import Assignment
from executors.readers.loading import load_dataset
from executors.structure import analyse
from executors.structure.signature import signature_of
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from tests.executors.algorithms.adaptivenet.conftest import deep_resnet


def run(adaptivenet, crowdhmt, seconds, latency):
    return Run(
        {"depth": Family(latency, 9.0, 4.0)},
        Side(adaptivenet, 100.0, 0.2, 0.3),
        Side(crowdhmt, seconds, 0.1, 0.3),
    )


def test_gains_are_means_over_the_shares_that_both_sides_reach():
    runs = [
        run({0.75: 80.0, 0.5: 70.0}, {0.75: 81.0, 0.5: 73.0, 0.35: 60.0}, 150.0, 0.5),
        run({0.75: 80.0, 0.5: 70.0}, {0.75: 80.0, 0.5: 72.0, 0.35: 60.0}, 130.0, 0.4),
        run({0.75: 80.0, 0.5: 70.0}, {0.75: 85.0, 0.5: 75.0, 0.35: 62.0}, 170.0, 0.6),
    ]
    assert figures_of(runs) == pytest.approx(
        {
            "gained": 2.0,
            "preparing": 1.5,
            "gained_at_0.75": 1.0,
            "gained_at_0.5": 3.0,
            "adaptivenet_at_0.75": 80.0,
            "crowdhmt_at_0.75": 81.0,
            "adaptivenet_at_0.5": 70.0,
            "crowdhmt_at_0.5": 73.0,
            "crowdhmt_at_0.35": 60.0,
            "latency_error": 0.1,
            "proportional_error": 0.3,
            "depth_latency": 0.5,
            "depth_closed": 9.0,
            "depth_trained": 4.0,
        }
    )


@pytest.mark.slow
def test_families_and_sides_are_measured_on_a_small_network(monkeypatch):
    monkeypatch.setattr(families, "FAMILIES", {"depth": [3], "low-rank": [0.5]})
    model = deep_resnet()
    signature = signature_of(model)
    train, test = (load_dataset(f"builtin:digits-{part}", signature) for part in ("train", "test"))
    setup = TrainingSetup(train, test, None, TrainingParams(batch_size=16))
    assignment = Assignment(model, {}, (), setup, 0, analyse(model))
    extent = families.Extent(0, 2, 2, 0.01, 0.2, 50)

    found = families.measured_families(assignment, test.subset(np.arange(50)), extent)
    assert found.keys() == {"depth", "low-rank", "shrink"}
    assert all(one.latency > 0 and -100 <= one.trained <= 100 for one in found.values())

    params = AdaptiveNetParams(
        largest=0.2, merge=(2,), shrink=(0.25,), variants={"depth": (1,)}, distil_steps=2, path_steps=2
    )
    side = families.measured_side(assignment, params, test.subset(np.arange(50)), extent)
    assert side.seconds > 0
    assert set(side.accuracies) <= set(families.SHARES)
    assert all(0 <= accuracy <= 100 for accuracy in side.accuracies.values())
