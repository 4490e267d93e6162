"""The transformer of `factory.transformer`, and what the benchmark makes of its slices."""

import numpy as np

from benchmarks.factory import transformer
from benchmarks.factory.networks import quad_vit
from benchmarks.factory.quality import LIMITS, SlicesWithin
from benchmarks.factory.transformer import TARGETS
from benchmarks.harness.run import add_seeds_option, run
from executors.algorithms.nnfactory.gates import gated_groups
from executors.structure import analyse


def slices(score, limit, open_units):
    gates = np.arange(100)[None] < np.array([[open_units], [open_units - 1]])
    tasks = [("has", "1"), ("has", "2")]
    return SlicesWithin(limit, np.array([score, 80.0]), np.array([1]), gates, tasks)


def test_the_feed_forward_units_of_all_blocks_have_gates():
    units = [group.units for group in gated_groups(analyse(quad_vit()))]
    assert units == [32, 256, 256, 256]


def test_a_quick_run_only_decides_whether_limits_are_kept(monkeypatch, capsys):
    seeds = []

    def tested_seed(seed, quick):
        seeds.append((seed, quick))
        return [slices(60.0, limit, round(100 * limit)) for limit in LIMITS]

    monkeypatch.setattr(transformer, "tested_seed", tested_seed)
    argv = ["--quick"]
    assert run("factory.transformer", TARGETS, transformer.measure, argv, add_seeds_option) == 0
    assert seeds == [(0, True)]
    assert "seed 0" in capsys.readouterr().out


def test_a_full_run_has_the_means_over_the_seeds_and_the_most_open_units(monkeypatch):
    scores, open_units = {0: 96.0, 1: 90.0}, {0: 20, 1: 30}
    monkeypatch.setattr(
        transformer, "tested_seed", lambda seed, quick: [slices(scores[seed], 0.25, open_units[seed])]
    )
    found = transformer.measure(type("Options", (), {"seeds": [0, 1], "quick": False})())
    assert found["known_at_0.25"] == 93
    assert found["unseen_at_0.25"] == 80
    assert round(found["beyond_at_0.25"], 6) == 0.05
    assert TARGETS.keys() <= found.keys()
