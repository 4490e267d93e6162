"""Make the asset of the current schema: `python -m tests.mistify_server.store.sql.assets.make` (two minutes).

A real server ports a small job with three goals and two added ones; a group, a device and a named model are
added as well. The database is then saved as SQL in `vN/store.sql.gz`.
"""

import contextlib
import gzip
import json
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mistify.costs.devices import DeviceTable
from mistify.profiling.measuring import measure_device
from tests.support.servers import MISTIFY

HERE = Path(__file__).parent

STEPS = {"source_steps": 20, "adapt_steps": 10, "tune_steps": 10, "max_steps": 40}


def goal(name: str, **settings: Any) -> dict[str, Any]:
    """Return a goal for the job."""
    return {
        "id": name,
        "model": "digits-resnet",
        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
        "algorithm": {"name": "morphnet", "config": STEPS},
        **settings,
    }


GOALS = [
    goal("half", adaptation_goal={"FLOP": "0.5x"}),
    goal("small", adaptation_goal={"FLOP": "0.25x", "accuracy": "99.9%"}, quantization="int8"),
    goal("switching", adaptation_goal={"FLOP": "0.3x"}, branches={"count": 2, "from": "1/2x", "to": "1x"}),
]
LATER = [
    goal("board", adaptation_goal={"latency": "0.4x"}, hardware="raspberry-pi"),
    goal(
        "sparse",
        adaptation_goal={"FLOP": "0.4x"},
        hardware="my-board",
        compression={"sparsity": 0.5},
    ),
]


def command(name: str | Path, *arguments: str | Path) -> None:
    """Run a command of Mistify; exit code 11 means that a goal was not met."""
    print(name, *arguments, flush=True)
    code = subprocess.run([name, *arguments], check=False).returncode
    if code not in (0, 11):
        sys.exit(f"{name} ended with {code}")


def fill(store: Path, scratch: Path) -> None:
    """Fill a new store with the content of the asset."""
    server = MISTIFY.with_name("mistify-server")
    table = measure_device("my-board", [1], budget_seconds=1e-3)
    (scratch / "table.json").write_bytes(TypeAdapter(DeviceTable).dump_json(table))
    for name, goals in (("goals", GOALS), ("later", LATER)):
        (scratch / f"{name}.json").write_text(json.dumps(goals))
    place = ("--out", scratch / "out", "--store", store)
    command(
        MISTIFY, "profile-device", "--name", "my-board", "--table", scratch / "table.json", "--store", store
    )
    command(MISTIFY, "port", scratch / "goals.json", *place)
    job = json.loads((scratch / "out" / "report.json").read_text())["job"]
    command(MISTIFY, "add", job, scratch / "later.json", *place)
    command(MISTIFY, "report-latency", "--device", "my-board", "--package", scratch / "out/goals/sparse",
            "--store", store)  # fmt: skip
    scales = '{"location_km": 1, "time_hours": 24}'
    command(server, "groups", "add", "home", "--job", job, "--scales", scales, "--store", store)
    model = next(store.glob("artifacts/??/*.keras"))
    command(server, "models", "add", "Tiny", model, "--store", store)


def dump(store: Path, folder: Path) -> None:
    """Save a store's database as SQL in the folder of its schema version."""
    with contextlib.closing(sqlite3.connect(store / "mistify.db")) as connection:
        (version,) = connection.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
        target = folder / f"v{version}" / "store.sql.gz"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress("\n".join(connection.iterdump()).encode(), mtime=0))
    print(target, target.stat().st_size)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        fill(Path(directory) / "store", Path(directory))
        dump(Path(directory) / "store", HERE)
