"""A job whose artifacts are in a bucket, continued by a server with another disk."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from executors.readers.builtin import read_builtin
from mistify_client import load
from mistify_server.store.directory import open_store
from mistify_server.store.objects.binding import OWNER
from tests.support.buckets import BucketServer, running_bucket_server
from tests.support.servers import MISTIFY, server
from tests.support.stored import jobs_in

SETTINGS = {"source_steps": 20, "adapt_steps": 16, "cuts": 2, "tune_steps": 10, "max_steps": 40}


@pytest.fixture
def bucket_server() -> Iterator[BucketServer]:
    with running_bucket_server() as running:
        yield running


def mistify(command: str, *options: str | Path) -> str:
    done = subprocess.run([MISTIFY, command, *options], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def packages(out: Path) -> dict[str, bytes]:
    """Return the files of all packages in a directory."""
    files = (path for path in (out / "goals").rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def test_packages_of_a_job_are_in_the_bucket(bucket_server: BucketServer, tmp_path: Path) -> None:
    config = {
        "id": "half",
        "model": "digits-resnet",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "adaptation_goal": {"FLOP": "0.5x"},
        "algorithm": {"name": "morphnet", "config": SETTINGS},
    }
    for part in ("train", "test"):
        np.savez(tmp_path / f"{part}.npz", **read_builtin(f"builtin:digits-{part}"))
    (tmp_path / "goals.json").write_text(json.dumps(config))
    store, environment = tmp_path / "store", {**os.environ, **bucket_server.variables}
    address = bucket_server.new_bucket()
    with server(store, "--artifacts", address, environment=environment) as (place, _):
        mistify("port", tmp_path / "goals.json", "--server", place, "--out", tmp_path / "out")
    ported = packages(tmp_path / "out")
    objects = bucket_server.objects(address)
    sent = {(tmp_path / f"{part}.npz").read_bytes() for part in ("train", "test")}
    assert {*ported.values(), *sent} <= set(objects.values())
    shutil.rmtree(store / "artifacts")
    with server(store, environment=environment) as (place, _):
        with open_store(store) as opened:
            (job,) = jobs_in(opened)
        mistify("fetch", job.id, "--server", place, "--out", tmp_path / "again")
    assert packages(tmp_path / "again") == ported
    assert bucket_server.objects(address).keys() == objects.keys() >= {OWNER}
    network = load(tmp_path / "again" / "goals" / "half")
    assert network(np.zeros((2, 8, 8, 1), np.float32)).shape == (2, 10)
