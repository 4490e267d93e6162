"""The model repository: models by name. And what the names in a config stand for."""

import re
from dataclasses import dataclass
from pathlib import Path

from executors.custom_layers import in_plug_in
from executors.inspection import inspect_source
from mistify.config.dataset import generated_count
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify_server.planning.resolution.data_roots import DataRoots, Wanted
from mistify_server.planning.resolution.model_names import parse_name
from mistify_server.store.artifacts import Artifacts
from mistify_server.store.models import ModelStore, NamedModel
from mistify_server.tasks.sources import ModelSource

#: Models that the server makes itself.
BUILTIN_MODELS = ("digits-resnet",)

#: Data that the server makes itself: role in a config -> its name.
BUILTIN_DATA = {"train": "builtin:digits-train", "test": "builtin:digits-test"}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class ModelRepository:
    """Models that are kept in the store, by names in any case."""

    names: ModelStore
    artifacts: Artifacts

    def add(self, name: str, path: Path) -> NamedModel:
        """Copy a model file into the store and give it a name, once it is known that it may be loaded.

        Raises:
            MistifyError: INVALID_CONFIG, the name cannot be used; CONFLICT, it is taken; NOT_FOUND,
                there is no such file; INVALID_MODEL, it is no model, or one that no worker would load;
                UNAVAILABLE, the disk is full, or jobs are being removed.
        """
        if not _NAME.fullmatch(name):
            raise MistifyError(
                ErrorCode.INVALID_CONFIG,
                f'got the name "{name}"; expected up to 64 letters, digits, ".", "_" and "-"; rename it',
            )
        if name.casefold() in BUILTIN_MODELS or self.names.find(name) is not None:
            raise MistifyError(
                ErrorCode.CONFLICT, f'there is a model "{name}" already; remove it first or use another name'
            )
        if not path.is_file():
            raise MistifyError(
                ErrorCode.NOT_FOUND, f"got {path}; expected a model file (.keras or .h5); check the path"
            )
        inspect_source(path.resolve(), in_plug_in)
        with self.artifacts.adding():
            model = NamedModel(name, self.artifacts.put(path), path.name)
            self.names.add(model)
        return model

    def find(self, name: str) -> ModelSource | None:
        """The model of a name, kept or built in; None if there is none."""
        model = self.names.find(name)
        if model is not None:
            return ModelSource(path=str(self.artifacts.path(model.artifact)))
        if name.casefold() in BUILTIN_MODELS:
            return ModelSource(builtin=name.casefold())
        return None


def find_model(given: str, repository: ModelRepository, roots: DataRoots) -> ModelSource:
    """The model that a config means: of the repository, built in, named by a scheme, a file or directory.

    Raises:
        InvalidValue: it is none of them.
    """
    found = repository.find(given) or parse_name(given, roots)
    if found is not None:
        return found
    try:
        return ModelSource(path=str(roots.find(given, Wanted.EITHER)))
    except InvalidValue as error:
        names = (*(model.name for model in repository.names.all()), *BUILTIN_MODELS)
        raise InvalidValue(
            given,
            f"a model name ({', '.join(names)}, keras.applications/NAME) or {error.expected}",
            error.fix,
        ) from error


def find_data(given: str, role: str, roots: DataRoots) -> str:
    """The data that a config means for a role, "train" or "test": files, built in, or to be generated.

    Raises:
        InvalidValue: it is neither.
    """
    if generated_count(given):
        return given
    if not given.startswith("builtin:"):
        return str(roots.find(given, Wanted.EITHER))
    if given != BUILTIN_DATA[role]:
        raise InvalidValue(given, BUILTIN_DATA[role], "write that, or the path of a file")
    return given
