"""Packages as models of MLflow: with the flavor `mistify`, and as Python functions.

mlflow.pyfunc.load_model("models:/MODEL").predict(array)
"""

import shutil
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from mlflow import pyfunc
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import Schema, TensorSpec

from mistify.package.manifest import Manifest, TensorInfo
from mistify_client.runtime.inputs import Array
from mistify_client.runtime.loading import load
from mistify_client.runtime.model import PortedModel

#: The name of the flavor in `MLmodel` files.
FLAVOR: Final = "mistify"

_DISTRIBUTION: Final = "mistify-porting"


def save_model(path: str, package: Path, mlflow_model: Model | None = None) -> None:
    """Save a package as a model of MLflow.

    Args:
        path: The directory of the model, which does not exist yet.
        package: The directory of the package, which is copied.
        mlflow_model: The model's description, to which the flavors are added; None for a new one.
    """
    manifest, installed = Manifest.load(package), version(_DISTRIBUTION)
    described = Model() if mlflow_model is None else mlflow_model
    described.add_flavor(
        FLAVOR,
        data=f"data/{package.name}",
        mistify_version=installed,
        job=manifest.job,
        goal=manifest.goal,
        precision=manifest.quantization.value,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*An input example was not provided", UserWarning)
        pyfunc.save_model(
            path,
            loader_module=__name__,
            data_path=str(package),
            mlflow_model=described,
            signature=signature_of(manifest),
            pip_requirements=[f"{_DISTRIBUTION}[client]>={installed}"],
        )


def signature_of(manifest: Manifest) -> ModelSignature:
    """Return the inputs and outputs of a package; quantized ones are described as the values they stand for.

    An array alone is enough for a single input, in spite of its name.
    """
    return ModelSignature(
        Schema([_spec(info, info.name) for info in manifest.inputs]),
        # A single output is returned as an array.
        Schema([_spec(info, info.name if len(manifest.outputs) > 1 else None) for info in manifest.outputs]),
    )


def _spec(info: TensorInfo, name: str | None) -> TensorSpec:
    dtype = np.dtype(info.dtype if info.scale is None else np.float32)
    return TensorSpec(dtype, info.shape, name)


class PackageFunction:
    """A package as a Python function.

    It runs on a copy: a package keeps the state of its device next to it, and the files of a model may be
    those of the tracking server itself.

    Args:
        package: The directory of the package.
    """

    def __init__(self, package: Path) -> None:
        self._scratch = TemporaryDirectory(prefix="mistify-")
        self._model = load(shutil.copytree(package, Path(self._scratch.name) / package.name))

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> Array | dict[str, Array]:
        """Run the network.

        Args:
            model_input: An array for each input, by name; or the array of the first input [batch, ...].
            params: Ignored: a package has none.

        Returns:
            The output [batch, ...]; for several outputs a dict by name.

        Raises:
            MistifyError: INVALID_DATASET, naming every input that does not fit.
        """
        return self._model(model_input)

    def get_raw_model(self) -> PortedModel:
        """Return the loaded package, for its options and statistics."""
        return self._model


def _load_pyfunc(data_path: str) -> PackageFunction:
    """Return the model whose `MLmodel` names this module; called by MLflow."""
    return PackageFunction(Path(data_path))
