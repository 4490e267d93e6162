#!/usr/bin/env bash
# MLflow 3.17.2 tries to open a directory as its SQLite database ten times, for 100 seconds, before it says so.
#
# Expected: `sqlite:///runs` is refused at once if `runs` is a directory, which SQLite reports in a millisecond and will
# always report. Retries are for servers that are starting or overloaded.
# Observed: MLflow retries after every error, whatever its cause, with waits from 0.1 to 51 seconds, 101 in all. A
# command or a test with such an address seems to hang, since the warnings do not say how long this goes on. The same
# holds for a database in a directory that cannot be written, and for a misspelt name of a host.
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
import sqlite3
import time
from pathlib import Path
from unittest import mock

import mlflow
from mlflow import MlflowClient

Path("runs").mkdir()
began = time.perf_counter()
try:
    sqlite3.connect("runs")
except sqlite3.OperationalError as error:
    print(f"sqlite {sqlite3.sqlite_version}: {error}, after {time.perf_counter() - began:.3f} s")
else:
    raise AssertionError("SQLite opens a directory")

with mock.patch("mlflow.store.db.utils.time.sleep") as sleep:
    try:
        MlflowClient("sqlite:///runs").search_experiments()
    except Exception as error:
        print(f"mlflow {mlflow.__version__}:", str(error).splitlines()[0])
    else:
        raise AssertionError("MLflow opens a directory")
waits = [call.args[0] for call in sleep.call_args_list]
print(f"waits: {', '.join(f'{wait:.1f}' for wait in waits)}; in all {sum(waits):.0f} s")
assert len(waits) == 9 and sum(waits) > 100
PYTHON
