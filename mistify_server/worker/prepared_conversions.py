"""Conversions of a preparation's networks, made once for all of its goals.

Another version of the code or of the libraries, or other calibration data, make them anew.
"""

import hashlib
import io
import json
from dataclasses import replace
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Final, TypeAlias

import keras
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
from mistify_server.worker.derived_files import DerivedFiles
from mistify_server.worker.packaging.conversion.activations import calibration
from mistify_server.worker.packaging.conversion.cuttable import (
    FLOAT32,
    CuttableNetwork,
    NotCuttableError,
    convert_cuttable,
)
from mistify_server.worker.packaging.conversion.factory import convert_assembler
from mistify_server.worker.packaging.conversion.representative import representative
from mistify_server.worker.training_setups import TrainingSetups

#: Code and libraries on which conversions depend.
_CODE: Final = ("executors", "mistify", "mistify_server.worker.packaging")
_LIBRARIES: Final = ("ai-edge-litert", "keras", "numpy", "tensorflow")

#: Number of networks that stay in memory: a preparation has one for each precision.
_IN_MEMORY: Final = 4

#: A network to cut slices from, or the reason why there is none.
_Cuttable: TypeAlias = CuttableNetwork | NotCuttableError


class PreparedConversions:
    """Converts networks of preparations, unless they are stored already.

    Args:
        preparations: The preparations of the store.
        checkpoints: Loads the preparations.
        setups: Prepares the data with which integers are calibrated.
    """

    def __init__(self, preparations: Preparations, checkpoints: Checkpoints, setups: TrainingSetups) -> None:
        self._files = DerivedFiles(preparations)
        self._checkpoints = checkpoints
        self._setups = setups
        self._recent: dict[str, _Cuttable] = {}

    @activity("converting")
    def cuttable(
        self, recipe: TaughtRecipe, params: Params, quantization: QuantizationConfig
    ) -> CuttableNetwork:
        """Return the whole network of a preparation, from which slices are cut.

        Args:
            params: The settings of the algorithm.
            quantization: The precision; that of quantization-aware training means the same without training.

        Raises:
            NotCuttableError: The algorithm has no slices, or they cannot be cut.
        """
        whole = self._whole(recipe, params)
        precision = quantization.precision.stored_as
        quantization = quantization.model_copy(update={"precision": precision})
        sample = self._sample(recipe, params) if precision.integer else None
        key = _key(recipe, quantization.model_dump_json(), sample)
        if key not in self._recent:
            name = f"cuttable-{precision}-{quantization.inputs}"
            make = partial(_written, whole, quantization, sample)
            made = _read(self._files.get(recipe.prepared or "", name, key, make))
            self._recent = dict([*self._recent.items(), (key, made)][-_IN_MEMORY:])
        if isinstance(conversion := self._recent[key], NotCuttableError):
            raise conversion
        if least := precision.storage.least_kernel:
            return replace(conversion, floats=self.cuttable(recipe, params, FLOAT32), least_kernel=least)
        return conversion

    @activity("converting")
    def assembler(self, recipe: TaughtRecipe, assembler: keras.Model) -> bytes:
        """Return the `.tflite` of a preparation's assembler."""
        make = partial(convert_assembler, assembler)
        return self._files.get(recipe.prepared or "", "assembler", _key(recipe), make)

    def _whole(self, recipe: TaughtRecipe, params: Params) -> WholeNetwork:
        if recipe.prepared is not None:
            prepared = self._checkpoints.load_prepared(recipe.prepared)
            source = self._setups.source(recipe, params)
            whole = self._setups.executor(recipe, params).whole(source, prepared)
            if whole is not None:
                return whole
        raise NotCuttableError(f"{recipe.algorithm} has no network to cut slices from")

    def _sample(self, recipe: TaughtRecipe, params: Params) -> Dataset:
        """Return a sample of the training data of all tasks."""
        return representative(self._setups.prepare(recipe, params, distilled=False).train)


def _key(recipe: TaughtRecipe, quantization: str = "", sample: Dataset | None = None) -> str:
    """Return a digest of everything that a conversion depends on.

    Args:
        sample: The data with which integers are calibrated.
    """
    rules = recipe.settings.get("layers")
    parts = [recipe.prepared, recipe.teacher, rules, quantization, *_environment()]
    digest = hashlib.sha256(json.dumps(parts).encode())
    for name, array in (sample.inputs if sample else {}).items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@lru_cache
def _environment() -> list[str]:
    return [code_digest(_CODE), *(f"{library} {version(library)}" for library in _LIBRARIES)]


def _written(whole: WholeNetwork, quantization: QuantizationConfig, sample: Dataset | None) -> bytes:
    """Convert a network, and return it with the places of its units, or the reason why it cannot be cut.

    Integers are calibrated with the examples whose activations are finite.
    """
    model = folded(model_of(whole.structure.graph))
    examples = {} if sample is None else calibration([model], sample).examples
    file = io.BytesIO()
    try:
        made = convert_cuttable(whole, quantization, examples)
    except NotCuttableError as error:
        np.savez(file, reason=str(error))
    else:
        network = np.frombuffer(made.network, np.uint8)
        np.savez(file, network=network, places=made.places.model_dump_json())
    return file.getvalue()


def _read(content: bytes) -> _Cuttable:
    """Return what `_written` wrote."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        if "reason" in arrays:
            return NotCuttableError(str(arrays["reason"]))
        places = CutPlaces.model_validate_json(str(arrays["places"]))
        return CuttableNetwork(arrays["network"].tobytes(), places)
