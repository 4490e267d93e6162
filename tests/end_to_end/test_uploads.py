"""A client and a server without shared files: models and data are uploaded, even if connections break."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from mistify_client import load
from tests.support.networks import two_convolutions
from tests.support.relay import Relay, relay
from tests.support.servers import MISTIFY, server

SETTINGS = {"source_steps": 60, "adapt_steps": 20, "cuts": 2, "tune_steps": 40}


@pytest.fixture(scope="module")
def client_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a model, 3 MB of training data, test data, and some of both as images."""
    keras.utils.set_random_seed(0)
    directory = tmp_path_factory.mktemp("laptop")
    two_convolutions().save(directory / "net.keras")
    digits = load_digits()
    images, labels = digits.images[..., None].astype(np.float32), digits.target
    np.savez(directory / "train.npz", x=np.repeat(images[:1500], 8, axis=0), y=np.repeat(labels[:1500], 8))
    np.savez(directory / "test.npz", x=images[1500:], y=labels[1500:])
    for number, (image, label) in enumerate(zip(digits.images[:200], labels[:200], strict=True)):
        path = directory / ("photos" if number < 100 else "others") / f"digit {label}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 15).astype(np.uint8)).save(path)
    config = {
        "id": "half",
        "model": "net.keras",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "adaptation_goal": {"FLOP": "0.5x"},
        "algorithm": {"name": "morphnet", "config": SETTINGS},
    }
    (directory / "goals.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def remote_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Relay, Path]]:
    """Return a relay to a server without data roots, and the server's store."""
    store = tmp_path_factory.mktemp("server") / "store"
    with server(store) as (address, _), relay(address) as between:
        yield between, store


def mistify(command: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MISTIFY, command, *options], check=False, capture_output=True, text=True)


def test_a_job_with_files_on_another_machine_is_ported(
    client_directory: Path, remote_server: tuple[Relay, Path], tmp_path: Path
) -> None:
    between, store = remote_server
    between.cut_after(1_500_000)
    done = mistify(
        "port", client_directory / "goals.json", "--server", between.address, "--out", tmp_path / "out"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sending net.keras, train.npz, test.npz" in done.stdout
    assert between.cuts == 1
    kept = {path.stat().st_size for path in (store / "uploads" / "files").rglob("*") if path.is_file()}
    assert (client_directory / "train.npz").stat().st_size in kept
    ported = load(tmp_path / "out" / "goals" / "half")
    assert ported(np.zeros((2, 8, 8, 1), np.float32)).shape == (2, 10)
    again = mistify(
        "port", client_directory / "goals.json", "--server", between.address, "--out", tmp_path / "out"
    )
    assert again.returncode == 0
    assert "sending" not in again.stdout


@pytest.mark.slow
def test_directories_are_uploaded_file_by_file(
    client_directory: Path, remote_server: tuple[Relay, Path]
) -> None:
    between, _ = remote_server
    config = json.loads((client_directory / "goals.json").read_text())
    config["dataset"] = {"train": "photos", "test": "others"}
    (client_directory / "images.json").write_text(json.dumps(config))
    sent_before = mistify("plan", client_directory / "goals.json", "--server", between.address)
    assert sent_before.returncode == 0, sent_before.stdout + sent_before.stderr
    done = mistify("plan", client_directory / "images.json", "--server", between.address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sending 200 files" in done.stderr  # without uploading the network again
    assert "net.keras" in done.stdout
    assert "upload:" not in done.stdout


def test_mistakes_are_reported_with_the_file_names_of_the_client(
    client_directory: Path, remote_server: tuple[Relay, Path], tmp_path: Path
) -> None:
    between, _ = remote_server
    (client_directory / "broken.keras").write_bytes(b"no model")
    config = json.loads((client_directory / "goals.json").read_text())
    (client_directory / "wrong.json").write_text(json.dumps({**config, "model": "broken.keras"}))
    done = mistify("plan", client_directory / "wrong.json", "--server", between.address)
    assert done.returncode == 2
    assert "broken.keras" in done.stderr
    assert "upload:" not in done.stderr
    (client_directory / "missing.json").write_text(json.dumps({**config, "model": "missing.keras"}))
    done = mistify("plan", client_directory / "missing.json", "--server", between.address)
    assert done.returncode == 2
    assert "missing.keras" in done.stderr


def test_a_server_limits_the_size_of_uploads(client_directory: Path, tmp_path: Path) -> None:
    with server(tmp_path / "store", "--max-uploads", "1MB") as (address, _):
        done = mistify(
            "port", client_directory / "goals.json", "--server", address, "--out", tmp_path / "out"
        )
    assert done.returncode == 13
    assert "expected" in done.stderr
    assert "--max-uploads" in done.stderr
