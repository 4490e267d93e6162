#!/usr/bin/env bash
# Optuna 5.0.0: PatientPruner never prunes a trial that stands still, and a larger `min_delta` makes it prune less.
#
# Expected: it "prunes the trial if the improvement in the intermediate values after a patience period is less than a
# threshold", as its documentation says, "equivalent to early-stopping" without a wrapped pruner: a loss that does not
# fall for `patience` steps ends the trial, and with `min_delta` also one that falls by less, as for Keras's
# EarlyStopping.
# Observed: it prunes if the loss has become larger, by more than `min_delta`. A loss that stays the same to the last
# digit, like an accuracy of a tenth for ten classes, is never pruned, with any patience, nor is one that alternates; a
# wrapped pruner that would stop it is not asked. With `min_delta`, even a rising loss goes on.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet optuna==5.0.0 sqlalchemy==2.1.9 alembic==1.20.1 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import optuna
from optuna.pruners import PatientPruner, ThresholdPruner

print("optuna", optuna.__version__)
optuna.logging.set_verbosity(optuna.logging.WARNING)
PATIENCE = 2


def pruned_at(losses, pruner):
    """Return the first step at which the trial is pruned, or None."""
    trial = optuna.create_study(pruner=pruner).ask()
    for step, loss in enumerate(losses):
        trial.report(loss, step)
        if trial.should_prune():
            return step
    return None


def early_stopping_at(losses, min_delta):
    """Return the first step after which no loss has been better by `min_delta` for PATIENCE steps, or None."""
    best, waited = float("inf"), 0
    for step, loss in enumerate(losses):
        if loss < best - min_delta:
            best, waited = loss, 0
        else:
            waited += 1
            if waited >= PATIENCE:
                return step
    return None


for name, losses, min_delta, expected in (
    ("rising", [1 + 0.01 * step for step in range(100)], 0.0, 3),
    ("constant", [1.0] * 100, 0.0, None),
    ("alternating", [1.0, 1.5] * 50, 0.0, None),
    ("falling by 0.0001 a step", [1 - 0.0001 * step for step in range(100)], 0.1, None),
    ("rising, then constant", [1.0] + [1.09] * 99, 0.1, None),
):
    seen = pruned_at(losses, PatientPruner(None, patience=PATIENCE, min_delta=min_delta))
    wrapped = pruned_at(losses, PatientPruner(ThresholdPruner(upper=0.5), patience=PATIENCE, min_delta=min_delta))
    print(
        f"{name}, min_delta {min_delta}: pruned at {seen}, with a pruner of losses above 0.5 at {wrapped}; "
        f"early stopping at {early_stopping_at(losses, min_delta)}"
    )
    assert seen == wrapped == expected and early_stopping_at(losses, min_delta) == 2
PYTHON
