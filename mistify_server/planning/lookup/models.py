"""The model repository, and the lookup of models and data by their names in a config."""

from dataclasses import dataclass
from pathlib import Path

from executors.custom_layers import in_plug_in
from executors.inspection import inspect_source
from executors.inspection.onnx_file import is_onnx, with_external_data
from mistify.config.data.dataset import generated_count
from mistify.config.files import ONNX, ModelCall, PathKind
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify_server.names import check_name
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.model_names import model_in, onnx_options, parse_name
from mistify_server.store.artifacts import Artifacts
from mistify_server.store.models import ModelStore, NamedModel
from mistify_server.tasks.sources import ModelSource

#: Models that the server creates itself.
BUILTIN_MODELS = ("digits-resnet",)

#: Data that the server creates itself: role in a config -> name.
BUILTIN_DATA = {
    "train": "builtin:digits-train",
    "test": "builtin:digits-test",
    "unlabelled": "builtin:digits-train",
}


@dataclass(frozen=True)
class ModelRepository:
    """Models in the store, by case-insensitive names."""

    names: ModelStore
    artifacts: Artifacts

    def add(self, name: str, path: Path) -> NamedModel:
        """Copy a model file into the store under a name, after checking that it is safe to load.

        External data of an ONNX file become part of the copy.

        Raises:
            MistifyError: INVALID_CONFIG, the name cannot be used; CONFLICT, it is taken; NOT_FOUND, there is
                no such file; INVALID_MODEL, the file is not a model, or workers would refuse it; UNAVAILABLE,
                the disk is full, or jobs are being removed.
        """
        check_name(name)
        if name.casefold() in BUILTIN_MODELS or self.names.find(name) is not None:
            raise MistifyError(
                ErrorCode.CONFLICT, f'there is a model "{name}" already; remove it first or use another name'
            )
        if not (path.is_file() or is_onnx(path)):
            raise MistifyError(
                ErrorCode.NOT_FOUND,
                f"got {path}; expected a model file (.keras, .h5 or .onnx), or a directory with an ONNX file "
                "and its external data; check the path",
            )
        path = path.resolve()
        inspect_source(path, in_plug_in)
        with self.artifacts.adding():
            model = NamedModel(name, self._put(path), path.name)
            self.names.add(model)
        return model

    def _put(self, path: Path) -> str:
        whole = with_external_data(path) if is_onnx(path) else None
        return self.artifacts.put(path) if whole is None else self.artifacts.put(whole, ONNX)

    def all_names(self) -> list[str]:
        """Return the names of all stored and built-in models."""
        return [*(model.name for model in self.names.all()), *BUILTIN_MODELS]

    def find(self, name: str) -> ModelSource | None:
        """Return the stored or built-in model with a name; None if there is none.

        Raises:
            InvalidValue: The name has sizes that are wrong, or the model is not an ONNX file.
        """
        plain, options = onnx_options(name)
        model = self.names.find(plain)
        if model is not None:
            return model_in(self._intact(model), name, options)
        if name.casefold() in BUILTIN_MODELS:
            return ModelSource(builtin=name.casefold())
        return None

    def _intact(self, model: NamedModel) -> Path:
        try:
            return self.artifacts.intact(model.artifact)
        except MistifyError as error:
            if error.code is not ErrorCode.CORRUPT_PACKAGE:
                raise
            raise MistifyError(
                error.code,
                f'the model "{model.name}" is damaged in the server\'s store; remove it, and add it again',
            ) from error


def find_model(name: str, repository: ModelRepository, roots: DataRoots) -> ModelSource:
    """Return a config's model: a repository or built-in model, a name with a scheme, a file, or a directory.

    `FILE.py:FUNCTION` is a function that returns a PyTorch network.

    Args:
        name: The name in a config.

    Raises:
        InvalidValue: The name is none of these.
    """
    call = ModelCall.parse(name)
    if call is not None:
        weights = None if call.weights is None else str(roots.find(call.weights, PathKind.EITHER))
        return ModelSource(
            path=str(roots.find(call.path)),
            call=call.function,
            weights=weights,
            channels_first=call.channels_first,
        )
    model = repository.find(name) or parse_name(name, roots)
    if model is not None:
        return model
    plain, options = onnx_options(name)
    try:
        path = roots.find(plain, PathKind.EITHER)
    except InvalidValue as error:
        names = repository.all_names()
        raise InvalidValue(
            name,
            f"a model name ({', '.join(names)}, keras.applications/NAME) or {error.expected}",
            error.fix,
        ) from error
    return model_in(path, name, options)


def find_data(name: str, part: str, roots: DataRoots) -> str:
    """Return a config's data: a path, built-in data, or the number of examples to generate.

    Args:
        name: The name in a config.
        part: The role of the data, such as "train".

    Raises:
        InvalidValue: The name is none of these.
    """
    if generated_count(name):
        return name
    made = BUILTIN_DATA.get(part)
    if made is None or not name.startswith("builtin:"):
        return str(roots.find(name, PathKind.EITHER))
    if name != made:
        raise InvalidValue(name, made, "write that name or the path of a file")
    return name
