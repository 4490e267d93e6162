#!/usr/bin/env bash
# Flower 1.42.0: Krum and MultiKrum choose updates by lot if the network has some large numbers.
#
# Expected: Krum chooses the update with the smallest distances to its neighbours (Blanchard et al., 2017), which leaves
# out two faulty nodes of ten; numbers that are the same for all nodes have no effect on distances.
# Observed: squared distances are computed in float32 as |x|^2 + |y|^2 - 2xy of the whole networks. Since these differ
# by little compared with their norms, the result is rounding error, and often negative. With 64 frozen variances of
# batch normalization of 1,000 each, which are ordinary for inputs up to 255, nodes are chosen as by lot, the faulty
# ones as often as others, without a warning. The same happens for small learning rates. Flower's former function for
# Krum, which subtracts first, is right for the same updates. Both are part of the package; the strategies of its new
# interface use the wrong one.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet flwr==1.42.0 numpy==2.4.6
cd "$directory"
export FLWR_TELEMETRY_ENABLED=0
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.server.strategy.aggregate import aggregate_krum
from flwr.serverapp.strategy.multikrum import compute_distances, select_multikrum

print("flwr", version("flwr"))
NODES, FAULTY, WEIGHTS, ROUNDS = 10, 2, 5_000, 40


def updates(generator, variance):
    """Return the networks of the nodes in any order, and which are faulty: those move the opposite way."""
    weights = generator.normal(0, 0.05, WEIGHTS)
    step = generator.normal(0, 1e-3, WEIGHTS)
    faulty = generator.permutation(NODES) < FAULTY
    moves = np.where(faulty, -5, 1)[:, None] * step + generator.normal(0, 5e-4, (NODES, WEIGHTS))
    frozen = np.full(64, variance)
    return [np.float32(np.concatenate([weights + move, frozen])) for move in moves], faulty


def chosen(networks):
    contents = [
        RecordDict({"arrays": ArrayRecord([network]), "metrics": MetricRecord({"node": node})})
        for node, network in enumerate(networks)
    ]
    distances = compute_distances([content["arrays"] for content in contents])
    (choice,) = select_multikrum(contents, FAULTY, 1)
    return choice["metrics"]["node"], distances


def formerly_chosen(networks):
    (network,) = aggregate_krum([([network], 1) for network in networks], FAULTY, 0)
    return next(node for node in range(NODES) if np.array_equal(networks[node], network))


for variance in (1, 1_000):
    generator = np.random.default_rng(0)
    now = before = negative = 0
    for _ in range(ROUNDS):
        networks, faulty = updates(generator, variance)
        node, distances = chosen(networks)
        now += faulty[node]
        before += faulty[formerly_chosen(networks)]
        negative += (distances < 0).any()
    print(
        f"variances of {variance:,}: faulty nodes are chosen in {now} of {ROUNDS} rounds, by the former function in "
        f"{before}; some distances are negative in {negative}"
    )
    assert before == 0
    assert now == 0 if variance == 1 else now > ROUNDS / 10
PYTHON
