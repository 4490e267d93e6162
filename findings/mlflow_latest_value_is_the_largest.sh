#!/usr/bin/env bash
# MLflow 3.17.2 shows the largest value of a metric as the latest one, if several have the same step and millisecond.
#
# Expected: the value in `run.data.metrics` is "the most recently logged value at the largest step", as the
# documentation says: of losses 3, 1 and 2, which are logged in this order, it is 2.
# Observed: it is 3. Values without a step all have step 0, and `log_metric(..., synchronous=False)` logs many in a
# millisecond. Searches for the best run, and the columns of runs, use this value. NaN counts as 0 in the comparison: a
# run whose loss becomes NaN keeps a number above 0.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet mlflow-skinny==3.17.2 sqlalchemy==2.1.9 alembic==1.20.1 pandas==3.1.1
cd "$directory"
export MLFLOW_DISABLE_TELEMETRY=true
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import math

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric

print("mlflow", mlflow.__version__)
client = MlflowClient("sqlite:///runs.db")
experiment = client.create_experiment("losses")


def latest(*values, times=None):
    """Return the value of a metric that was logged several times at one step, and the history of it."""
    run = client.create_run(experiment).info.run_id
    for number, value in enumerate(values):
        client.log_batch(run, [Metric("loss", value, 1_800_000_000_000 + (number if times else 0), 0)])
    history = [metric.value for metric in client.get_metric_history(run, "loss")]
    return client.get_run(run).data.metrics["loss"], history


for values in ((3.0, 1.0, 2.0), (0.5, math.nan)):
    value, history = latest(*values)
    later, _ = latest(*values, times=True)
    print(f"{values} in one millisecond: {value}, one after the other: {later}, history {history}")
    assert value == max(values[0], values[-1])
    assert later == values[-1] or math.isnan(later) and math.isnan(values[-1])
PYTHON
