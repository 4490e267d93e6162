"""Networks and pseudo-labelled data among the artifacts of the store."""

import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile, ZipInfo

import keras
import numpy as np

from executors.data import Dataset
from executors.sources.contract import SourceModel
from executors.sources.keras.source import KerasSource
from executors.sources.loading import read_source
from executors.timing import activity
from mistify.tflite.slicing import OpenUnits
from mistify_server.store.artifacts import Artifacts
from mistify_server.worker.unit_arrays import read_units, write_units

#: The part of a checkpoint's file with the units of a slice.
_UNITS: Final = "units.npz"


class Checkpoints:
    """Saves and loads networks by the digests of their files; the most recent ones stay in memory.

    So a worker need not load the network that it has just adapted, to package it or to adapt it further.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts
        self._shared = lru_cache(maxsize=4)(self._read_or_latest)
        self._latest: tuple[str, SourceModel] | None = None

    def source(self, artifact: str) -> SourceModel:
        """Return a shared source model, which must not be changed."""
        return self._shared(artifact)

    def shared(self, artifact: str) -> keras.Model:
        """Return a shared network, which must not be changed."""
        return _network(self._shared(artifact))

    def load(self, artifact: str) -> keras.Model:
        """Return a network that belongs to the caller."""
        return _network(self._read(artifact))

    def save(self, model: keras.Model) -> str:
        """Store a network as an artifact; identical networks share one file, whenever they were made.

        The random state of its layers is not saved, because training sets its own seed.

        Args:
            model: The network, which must not be changed later.
        """
        source = KerasSource(model)
        artifact = self.save_source(source)
        self._latest = artifact, source
        return artifact

    @activity("saving")
    def save_slice(self, network: keras.Model, units: Sequence[OpenUnits]) -> str:
        """Store a slice of a prepared network, with its units, as an artifact.

        Args:
            network: The slice, which must not be changed later.
            units: The units of each group of the prepared network.
        """
        source = KerasSource(network)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"checkpoint{source.suffix}"
            source.write(path)
            with ZipFile(path, "a") as file:
                file.writestr(ZipInfo(_UNITS), write_units(units))
            artifact = self._artifacts.put(path)
        self._latest = artifact, source
        return artifact

    def units(self, artifact: str) -> tuple[OpenUnits, ...] | None:
        """Return the units of a network that was stored as a slice; None for any other network."""
        path = self._artifacts.intact(artifact)
        if path.suffix != KerasSource.suffix:
            return None
        with ZipFile(path) as file:
            return read_units(file.read(_UNITS)) if _UNITS in file.namelist() else None

    @activity("saving")
    def save_source(self, source: SourceModel) -> str:
        """Store a source of any kind as an artifact."""
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"checkpoint{source.suffix}"
            source.write(path)
            return self._artifacts.put(path)

    @activity("saving")
    def save_data(self, data: Dataset) -> Path:
        """Store pseudo-labelled data as an artifact, and return the path of the file."""
        arrays: dict[str, Any] = {**data.inputs, **data.targets}
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "data.npz"
            np.savez(path, **arrays)
            return self._artifacts.path(self._artifacts.put(path))

    def load_prepared(self, artifact: str | None) -> bytes:
        """Return the result of an algorithm's preparation; empty if there was none."""
        return self._artifacts.intact(artifact).read_bytes() if artifact else b""

    def _read_or_latest(self, artifact: str) -> SourceModel:
        if self._latest is not None and self._latest[0] == artifact:
            return self._latest[1]
        return self._read(artifact)

    @activity("loading")
    def _read(self, artifact: str) -> SourceModel:
        return read_source(self._artifacts.intact(artifact))


def _network(source: SourceModel) -> keras.Model:
    if source.network is None:
        raise TypeError("a source without a network is packaged unchanged; this would edit or train it")
    return source.network
