#!/usr/bin/env bash
# Flower 1.42.0 drops most of the trees that clients send, if XGBoost has several classes or rounds a client.
#
# Expected: FedXgbBagging adds all trees that the clients trained to the model, each for its class, as its example for
# two classes and one round does.
# Observed: it adds only the first tree of each client (as many as `num_parallel_tree`), and for the first class. With
# three classes, a client sends three trees; two are dropped, and the sums of these classes hardly change: after 30
# rounds, the model is worse than that of one client alone. With three local rounds and two classes, two of three trees
# are dropped as well. There is no warning, and the model loads and predicts.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet flwr==1.42.0 xgboost-cpu==3.2.0 numpy==2.4.6
cd "$directory"
export FLWR_TELEMETRY_ENABLED=0
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import json
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import xgboost
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedXgbBagging

print("Flower", version("flwr"), "XGBoost", xgboost.__version__)
generator = np.random.default_rng(0)
points = generator.normal(size=(1200, 2))


def forest(booster):
    """Return the class of each tree of a booster."""
    return json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["tree_info"]


def federate(labels, rounds, local_rounds, **parameters):
    """Return the booster of two clients, how many trees they trained for it, and the booster of the first one alone."""
    halves = [xgboost.DMatrix(points[place::2], labels[place::2]) for place in range(2)]
    parameters |= {"max_depth": 3, "eta": 0.3, "nthread": 1}
    alone = xgboost.train(parameters, halves[0], local_rounds * rounds)
    strategy, shared, trained = FedXgbBagging(), None, 0
    for server_round in range(1, rounds + 1):
        replies = []
        for half in halves:
            booster = xgboost.train(parameters, half, local_rounds, xgb_model=shared)
            first = shared.num_boosted_rounds() if shared else 0
            new = booster[first:]
            trained += len(forest(new))
            arrays = ArrayRecord([np.frombuffer(new.save_raw("json"), np.uint8)])
            content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": half.num_row()})})
            replies.append(SimpleNamespace(content=content, has_error=lambda: False, metadata=None))
        if shared is None:
            strategy.current_bst = b""  # what a server sends in the first round
        arrays, _ = strategy.aggregate_train(server_round, replies)
        shared = xgboost.Booster(parameters)
        shared.load_model(bytearray(arrays["0"].numpy().tobytes()))
    return shared, trained, alone


three = np.digitize(np.sin(3 * points[:, 0]) + points[:, 1], [-0.5, 0.5])
for name, labels, local_rounds, parameters in (
    ("two classes", (points[:, 0] > 0).astype(int), 1, {"objective": "binary:logistic"}),
    ("three local rounds", (points[:, 0] > 0).astype(int), 3, {"objective": "binary:logistic"}),
    ("three classes", three, 1, {"objective": "multi:softprob", "num_class": 3}),
):
    for rounds in (1, 30):
        federated, trained, alone = federate(labels, rounds, local_rounds, **parameters)
        kept, accuracies = forest(federated), []
        for booster in (federated, alone):
            predicted = booster.predict(xgboost.DMatrix(points))
            predicted = predicted.argmax(1) if predicted.ndim == 2 else predicted > 0.5
            accuracies.append((predicted == labels).mean())
        print(
            f"{name}, {rounds} rounds: {len(kept)} of {trained} trees, of classes {np.bincount(kept).tolist()}, "
            f"accuracy {accuracies[0]:.2f}, of one client alone {accuracies[1]:.2f}"
        )
    # All trees of the first client in the first round, one of each other.
    assert len(kept) == trained // (2 * rounds) + 2 * rounds - 1
assert accuracies[0] < accuracies[1] - 0.02
PYTHON
