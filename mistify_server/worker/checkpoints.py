"""Networks, and data with the source's answers, among the artifacts of the store."""

import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import keras
import numpy as np

from executors.data import Dataset
from executors.timing import activity
from mistify_server.store.artifacts import Artifacts


class Checkpoints:
    """Saves and loads networks by the digests of their files; the latest few stay in memory."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._shared = lru_cache(maxsize=4)(self.load)

    def shared(self, artifact: str) -> keras.Model:
        """Return a network that nobody may change."""
        return self._shared(artifact)

    @activity("loading")
    def load(self, artifact: str) -> keras.Model:
        """Return a network that belongs to the caller."""
        return keras.models.load_model(self._artifacts.path(artifact), compile=False, safe_mode=True)

    @activity("saving")
    def save(self, model: keras.Model) -> str:
        """Put a network into the artifacts."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "checkpoint.keras"
            model.save(path)
            return self._artifacts.put(path)

    @activity("saving")
    def save_data(self, data: Dataset) -> Path:
        """Put data with the source's answers into the artifacts; return the path of the file."""
        arrays: dict[str, Any] = {**data.inputs, **data.targets}
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "data.npz"
            np.savez(path, **arrays)
            return self._artifacts.path(self._artifacts.put(path))

    def load_prepared(self, artifact: str | None) -> bytes:
        """Return what an algorithm has prepared; empty where it has prepared nothing."""
        return self._artifacts.path(artifact).read_bytes() if artifact else b""
