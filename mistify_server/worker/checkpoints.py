"""Networks, and data with the source's answers, among the artifacts of the store."""

import json
import shutil
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile, ZipInfo

import keras
import numpy as np

from executors.data import Dataset
from executors.structure.keras_internals import seed_states
from executors.timing import activity
from mistify_server.store.artifacts import Artifacts

#: The part of a Keras file that has the time at which it was saved, and its name for that time.
_METADATA: Final = "metadata.json"
_SAVED_AT: Final = "date_saved"


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
        path = self._artifacts.intact(artifact)
        return keras.models.load_model(path, compile=False, safe_mode=True)

    @activity("saving")
    def save(self, model: keras.Model) -> str:
        """Put a network into the artifacts; equal networks have one file, whenever they were made.

        What its layers would draw at random next is forgotten: whoever trains it says where that starts.
        """
        for state in seed_states(model):
            state.assign([0, 0])
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "checkpoint.keras"
            model.save(path)
            timeless = Path(directory) / "timeless.keras"
            _copy_without_times(path, timeless)
            return self._artifacts.put(timeless)

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
        return self._artifacts.intact(artifact).read_bytes() if artifact else b""


def _copy_without_times(saved: Path, copy: Path) -> None:
    """Copy a Keras file without the times at which it and its parts were written."""
    with ZipFile(saved) as source, ZipFile(copy, "w") as target:
        for name in sorted(source.namelist()):
            with source.open(name) as part, target.open(ZipInfo(name), "w", force_zip64=True) as into:
                if name == _METADATA:
                    metadata = json.load(part)
                    into.write(json.dumps({**metadata, _SAVED_AT: ""}).encode())
                else:
                    shutil.copyfileobj(part, into)
