"""A Keras model as a source that can be cut and trained."""

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self
from zipfile import ZipFile, ZipInfo

import keras

from executors.sources.contract import Range, SourceModel
from executors.structure.exporting import NamedFunction, folded
from executors.structure.keras_internals import seed_states
from executors.structure.signature import Signature, signature_of
from mistify.package.source import SOURCE, SourceInterface

#: The part of a Keras file with the time of saving, and the key of that time.
_METADATA: Final = "metadata.json"
_SAVED_AT: Final = "date_saved"

#: The part with the ranges of integers.
_RANGES: Final = "ranges.json"


class KerasSource(SourceModel):
    """A flat functional Keras model.

    Args:
        interface: The inputs and outputs of the file from which the model was translated, if it was.
        ranges: Layer -> the range of its output's integers, if that file simulates quantization.
    """

    suffix = ".keras"

    def __init__(
        self,
        network: keras.Model,
        interface: SourceInterface | None = None,
        ranges: Mapping[str, Range] | None = None,
    ) -> None:
        self._network = network
        self._interface = interface
        self._ranges = ranges or {}

    @property
    def network(self) -> keras.Model:
        """The model."""
        return self._network

    @property
    def interface(self) -> SourceInterface | None:
        """The inputs and outputs of the file."""
        return self._interface

    @property
    def ranges(self) -> Mapping[str, Range]:
        """The ranges of layers' outputs."""
        return self._ranges

    @property
    def signature(self) -> Signature:
        """The inputs and outputs."""
        return signature_of(self._network)

    def export(self) -> NamedFunction:
        """Return the function of the model with batch norm folded."""
        return folded(self._network)

    def write(self, path: Path) -> None:
        """Write the model, without the random state of its layers."""
        for state in seed_states(self._network):
            state.assign([0, 0])
        with tempfile.TemporaryDirectory() as directory:
            saved = Path(directory) / "model.keras"
            self._network.save(saved)
            _copy_without_times(saved, path)
        with ZipFile(path, "a") as file:
            if self._interface is not None:
                file.writestr(ZipInfo(SOURCE), self._interface.model_dump_json())
            if self._ranges:
                file.writestr(ZipInfo(_RANGES), json.dumps(self._ranges))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Load a model written by `write`."""
        network = keras.models.load_model(path, compile=False, safe_mode=True)
        with ZipFile(path) as file:
            known = file.namelist()
            interface = SourceInterface.model_validate_json(file.read(SOURCE)) if SOURCE in known else None
            ranges = json.loads(file.read(_RANGES)) if _RANGES in known else {}
        return cls(network, interface, {layer: (least, most) for layer, (least, most) in ranges.items()})


def _copy_without_times(saved: Path, copy: Path) -> None:
    """Copy a Keras file without the timestamps of the file and its parts."""
    with ZipFile(saved) as source, ZipFile(copy, "w") as target:
        for name in sorted(source.namelist()):
            with source.open(name) as part, target.open(ZipInfo(name), "w", force_zip64=True) as into:
                if name == _METADATA:
                    metadata = json.load(part)
                    into.write(json.dumps({**metadata, _SAVED_AT: ""}).encode())
                else:
                    shutil.copyfileobj(part, into)
