"""Resolution: lookup of the models, data and devices that configs name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, TypeAlias

from pydantic_core import to_json

from executors.custom_layers import in_plug_in
from executors.inspection import inspect_source
from mistify.config.data.code import CodeFile
from mistify.config.data.dataset import DatasetConfig, DataSettings, generated_count
from mistify.config.data.loss import LOSSES
from mistify.config.data.metric import METRICS
from mistify.config.files import FileField, FileForm, ModelCall, with_files
from mistify.config.reading import CollectiveBatch
from mistify.parsing.validation import InvalidValue, Keys, json_path
from mistify.uploads import as_written
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.lookup.algorithms import check_algorithm
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.hardware import find_devices
from mistify_server.planning.lookup.models import ModelRepository, find_data, find_model
from mistify_server.planning.lookup.tasks import with_tasks
from mistify_server.store.devices import DeviceStore
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.sources import DataSource, ModelSource

_REFUSES_CODE: Final = "this server does not run files that configs name"
_CONSENT: Final = "or, if all callers may run code there, start it with --allow-code (allow_code in a file)"


_Sources: TypeAlias = tuple[ModelSource, DataSource]


@dataclass(frozen=True)
class BatchResolver:
    """Finds the models, data and devices of batches by name, without reading data or calling a worker.

    Attributes:
        allow_code: Whether workers may run Python files that configs name.
        opens_models: Whether to check the contents of model files as well, as workers do before loading.
            Files may be hostile, so only an expendable process does this.
        remembered: The models and data of batches that are not looked up again; None to look everything up.
    """

    models: ModelRepository
    roots: DataRoots
    devices: DeviceStore
    allow_code: bool = False
    opens_models: bool = False
    remembered: dict[bytes, _Sources] | None = None

    def remembering(self) -> "BatchResolver":
        """Return a resolver for many batches at a time, which looks each model and dataset up once."""
        return replace(self, remembered={})

    def resolve(self, batches: Sequence[CollectiveBatch], problems: ProblemCollector) -> list[ResolvedBatch]:
        """Return the batches in which all names are known.

        Args:
            problems: Collects unknown names. A problem shared by configs of a batch is reported for the first
                one.
        """
        resolved = (self._resolve(number, batch, problems) for number, batch in enumerate(batches))
        return [batch for batch in resolved if batch is not None]

    def _resolve(
        self, number: int, batch: CollectiveBatch, problems: ProblemCollector
    ) -> ResolvedBatch | None:
        place, count = f"[{batch.indices[0]}]", len(problems.problems)
        devices = find_devices(batch, self.devices, problems.problems)
        model, data = self._find_sources(batch, place, problems)
        if data is not None:
            batch = with_tasks(batch, data.settings.tasks, problems)
        if len(problems.problems) > count or model is None or data is None:
            return None
        return ResolvedBatch(number, batch, model, data, devices)

    def _find_sources(
        self, batch: CollectiveBatch, place: str, problems: ProblemCollector
    ) -> tuple[ModelSource | None, DataSource | None]:
        """Return the model and data of a batch, whose algorithm is checked; None for those with problems."""
        key, count = _naming(batch), len(problems.problems)
        if self.remembered is not None and key in self.remembered:
            return self.remembered[key]
        check_algorithm(batch.algorithm, place, problems)
        model = problems.check(f"{place}.model", lambda: self._find_model(batch.model))
        if self.opens_models and model is not None and model.path and model.call is None:
            problems.load(f"{place}.model", partial(inspect_source, Path(model.path), in_plug_in))
        data = self._find_data(batch, f"{place}.dataset", problems)
        if self.remembered is not None and model and data and len(problems.problems) == count:
            self.remembered[key] = model, data
        return model, data

    def _find_model(self, name: str) -> ModelSource:
        if ModelCall.parse(name) is not None and not self.allow_code:
            raise InvalidValue(
                as_written(name), f"a model without code: {_REFUSES_CODE}", f"name an ONNX file; {_CONSENT}"
            )
        return find_model(name, self.models, self.roots)

    def _find_data(self, batch: CollectiveBatch, place: str, problems: ProblemCollector) -> DataSource | None:
        dataset, count = batch.dataset, len(problems.problems)
        resolved = self.with_paths(dataset, place, problems)
        if len(problems.problems) > count:
            return None
        settings = {name: getattr(resolved, name) for name in DataSettings.model_fields}
        return DataSource(
            train=resolved.train,
            test=resolved.test,
            unlabelled=resolved.unlabelled,
            settings=dataset.settings.model_copy(update=settings),
            labelled=dataset.test is not None and not generated_count(dataset.test),
        )

    def is_same_model(self, name: str, other: str) -> bool:
        """Return whether two names lead to the same model; False if either is unknown."""
        unknown = ProblemCollector()
        sources = [unknown.check(each, partial(self._find_model, each)) for each in (name, other)]
        return not unknown.problems and sources[0] == sources[1]

    def is_same_dataset(self, dataset: DatasetConfig, other: DatasetConfig) -> bool:
        """Return whether two datasets have the same settings and files; False if any file is missing."""
        unknown = ProblemCollector()
        located = [self.with_paths(each, "dataset", unknown) for each in (dataset, other)]
        return not unknown.problems and located[0] == located[1]

    def with_paths(self, dataset: DatasetConfig, place: str, problems: ProblemCollector) -> DatasetConfig:
        """Return a dataset with all file names replaced by their paths below the roots.

        Files with metrics and losses get their digests as well.

        Args:
            place: JSON path of the dataset.
            problems: Collects names of missing files; these names stay unchanged.
        """
        code: dict[str, CodeFile] = {}

        def find(keys: Keys, field: FileField, text: str) -> str:
            if field.form is FileForm.CODE:
                look = partial(self._find_code, dataset, keys, text)
                code.update(problems.check(json_path(keys, place), look) or {})
                return text
            return problems.check(json_path(keys, place), partial(self._find, keys, field, text)) or text

        resolved: DatasetConfig = with_files(type(dataset), dataset, find)
        return resolved.model_copy(update={"code": code})

    def _find(self, keys: Keys, field: FileField, text: str) -> str:
        if field.form is FileForm.DATA:
            return find_data(text, str(keys[-1]), self.roots)
        return str(self.roots.find(text, field.kind))

    def _find_code(self, dataset: DatasetConfig, keys: Keys, name: str) -> dict[str, CodeFile]:
        """Return the file of a metric or loss by name, with its digest; empty if it is not in a file."""
        file = dataset.code.get(name)
        if file is None:
            return {}
        if not self.allow_code:
            group = LOSSES if keys[0] == "losses" else METRICS
            raise InvalidValue(
                f"{as_written(file.path)}:{name}",
                f"the name of an entry point of {group}: {_REFUSES_CODE}",
                f"install a plug-in on the server; {_CONSENT}",
            )
        path = self.roots.find(file.path)
        return {name: CodeFile(path=str(path), sha256=sha256(path.read_bytes()).hexdigest())}


def _naming(batch: CollectiveBatch) -> bytes:
    """Return JSON that is equal only for batches that name the same model, dataset and algorithm."""
    return to_json([batch.model, batch.dataset, batch.algorithm])
