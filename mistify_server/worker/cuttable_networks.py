"""Converted networks out of which workers cut slices, made once for all goals of a preparation.

They are kept beside the preparation in the store. Another version of the code or of the libraries, or other
calibration data, make a new one.
"""

import hashlib
import io
import json
from collections.abc import Callable
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np

from executors.contract.params import Params
from executors.contract.slices import WholeNetwork
from executors.data import Dataset
from executors.structure import model_of
from executors.structure.exporting import folded
from executors.timing import activity
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.cut_places import CutPlaces
from mistify_server.store.preparations import Preparations
from mistify_server.tasks.code import code_digest
from mistify_server.tasks.recipe import TaughtRecipe
from mistify_server.worker.checkpoints import Checkpoints
from mistify_server.worker.packaging.conversion.activations import calibration
from mistify_server.worker.packaging.conversion.cuttable import (
    CuttableNetwork,
    NotCuttableError,
    convert_cuttable,
)
from mistify_server.worker.packaging.conversion.representative import representative
from mistify_server.worker.training_setups import TrainingSetups

#: Code and libraries on which a converted network depends.
_CODE: Final = ("executors", "mistify", "mistify_server.worker.packaging")
_LIBRARIES: Final = ("ai-edge-litert", "keras", "numpy", "tensorflow")

#: A converted network, or the reason why there is none.
_Made = CuttableNetwork | NotCuttableError

#: Number of networks that stay in memory: a preparation has one for each precision.
_IN_MEMORY: Final = 4


class CuttableNetworks:
    """Converts the networks of preparations for cuts, unless they are stored already.

    Args:
        preparations: The preparations of the store.
        checkpoints: Loads the preparations.
        setups: Prepares the data with which integers are calibrated.
    """

    def __init__(self, preparations: Preparations, checkpoints: Checkpoints, setups: TrainingSetups) -> None:
        self._preparations = preparations
        self._checkpoints = checkpoints
        self._setups = setups
        self._recent: dict[str, _Made] = {}

    @activity("converting")
    def at(self, recipe: TaughtRecipe, params: Params, quantization: QuantizationConfig) -> CuttableNetwork:
        """Return the converted network of a preparation, with the places of its units.

        Args:
            params: The settings of the algorithm.
            quantization: The precision; that of quantization-aware training means the same without training.

        Raises:
            NotCuttableError: The algorithm has no slices, or they cannot be cut.
        """
        whole = self._whole(recipe, params)
        precision = quantization.precision.stored_as
        quantization = quantization.model_copy(update={"precision": precision})
        train = self._setups.prepare(recipe, params, distilled=False).train if precision.integer else None
        sample = None if train is None else representative(train)
        key = _key(whole, recipe, quantization, sample)
        if key not in self._recent:
            convert = partial(_made, whole, quantization, sample)
            found = self._stored_or_made(key, recipe.prepared or "", quantization, convert)
            self._recent = dict([*self._recent.items(), (key, found)][-_IN_MEMORY:])
        if isinstance(found := self._recent[key], NotCuttableError):
            raise found
        return found

    def _whole(self, recipe: TaughtRecipe, params: Params) -> WholeNetwork:
        if recipe.prepared is not None:
            source, content = (
                self._setups.source(recipe, params),
                self._checkpoints.load_prepared(recipe.prepared),
            )
            whole = self._setups.executor(recipe, params).whole(source, content)
            if whole is not None:
                return whole
        raise NotCuttableError(f"{recipe.algorithm} has no network to cut slices from")

    def _stored_or_made(
        self, key: str, prepared: str, quantization: QuantizationConfig, convert: Callable[[], _Made]
    ) -> _Made:
        part = f"cuttable-{quantization.precision}-{quantization.inputs}"
        beside = self._preparations.beside(prepared)
        with self._preparations.held(beside):
            try:
                return _read(self._preparations.part(beside, part), key)
            except (ValueError, KeyError, EOFError, BadZipFile):  # none, of another version, or damaged
                made = convert()
                self._preparations.keep(beside, part, _written(made, key))
                return made


def _made(whole: WholeNetwork, quantization: QuantizationConfig, sample: Dataset | None) -> _Made:
    """Convert a network; integers are calibrated with the examples whose activations are finite."""
    model = folded(model_of(whole.structure.graph))
    examples = {} if sample is None else calibration([model], sample).examples
    try:
        return convert_cuttable(whole, quantization, examples)
    except NotCuttableError as error:
        return error


def _key(
    whole: WholeNetwork, recipe: TaughtRecipe, quantization: QuantizationConfig, sample: Dataset | None
) -> str:
    """Return a digest of everything that a converted network depends on."""
    parts: dict[str, Any] = {
        "prepared": recipe.prepared,
        "teacher": recipe.teacher,
        "groups": [group.model_dump() for group in whole.groups],
        "classes": whole.classes,
        "quantization": quantization.model_dump(mode="json"),
        "environment": _environment(),
    }
    digest = hashlib.sha256(json.dumps(parts).encode())
    for name, array in (sample.inputs if sample else {}).items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@lru_cache
def _environment() -> list[str]:
    return [code_digest(_CODE), *(f"{library} {version(library)}" for library in _LIBRARIES)]


def _written(made: _Made, key: str) -> bytes:
    network, about = b"", {"key": key}
    if isinstance(made, NotCuttableError):
        about["reason"] = str(made)
    else:
        network, about["places"] = made.network, made.places.model_dump_json()
    file = io.BytesIO()
    np.savez(file, about=json.dumps(about), network=np.frombuffer(network, np.uint8))
    return file.getvalue()


def _read(content: bytes, key: str) -> _Made:
    """Return what `_written` wrote.

    Raises:
        ValueError: It belongs to another key, or is damaged.
        KeyError: It lacks a part.
        BadZipFile: It is damaged.
        EOFError: It is empty.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        about, network = json.loads(str(arrays["about"])), arrays["network"].tobytes()
    if about["key"] != key:
        raise ValueError("made for another key")
    if "reason" in about:
        return NotCuttableError(about["reason"])
    return CuttableNetwork(network, CutPlaces.model_validate_json(about["places"]))
