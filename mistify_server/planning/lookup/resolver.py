"""Resolution: models, data and devices that the configs name are looked up."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

from executors.custom_layers import in_plug_in
from executors.inspection import inspect_source
from mistify.config.data.code import CodeFile
from mistify.config.data.dataset import DataSettings, generated_count
from mistify.config.data.loss import LOSSES
from mistify.config.data.metric import SCORES
from mistify.config.reading import CollectiveBatch
from mistify.parsing.validation import InvalidValue, json_path
from mistify.uploads import as_written
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.lookup.algorithms import check_algorithm
from mistify_server.planning.lookup.data_roots import DataRoots, PathKind
from mistify_server.planning.lookup.hardware import find_devices
from mistify_server.planning.lookup.models import PARTS, ModelRepository, find_data, find_model
from mistify_server.store.devices import DeviceStore
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.sources import DataSource


@dataclass(frozen=True)
class BatchResolver:
    """Finds the models, data and devices of batches by their names; no data are read and no worker asked.

    Attributes:
        models: Models by name.
        roots: Directories with files.
        devices: Measured devices.
        allow_code: Whether workers may run Python files that configs name.
        opens_models: Whether to look into model files as well, as workers do before they load them. They may
            be hostile: only a process that can be lost does that.
    """

    models: ModelRepository
    roots: DataRoots
    devices: DeviceStore
    allow_code: bool = False
    opens_models: bool = False

    def resolve(self, batches: Sequence[CollectiveBatch], problems: ProblemCollector) -> list[ResolvedBatch]:
        """Return the batches whose names are all known.

        Args:
            problems: Collects unknown names. A problem that configs of a batch share is reported for the
                first of them.
        """
        resolved = (self._resolve(number, batch, problems) for number, batch in enumerate(batches))
        return [batch for batch in resolved if batch is not None]

    def _resolve(
        self, number: int, batch: CollectiveBatch, problems: ProblemCollector
    ) -> ResolvedBatch | None:
        place, count = f"[{batch.indices[0]}]", len(problems.problems)
        check_algorithm(batch.algorithm, place, problems)
        devices = find_devices(batch, self.devices, problems.problems)
        model = problems.check(f"{place}.model", lambda: find_model(batch.model, self.models, self.roots))
        if self.opens_models and model is not None and model.path and Path(model.path).is_file():
            problems.load(f"{place}.model", partial(inspect_source, Path(model.path), in_plug_in))
        data = self._find_data(batch, f"{place}.dataset", problems)
        if len(problems.problems) > count or model is None or data is None:
            return None
        return ResolvedBatch(number, batch, model, data, devices)

    def _find_data(self, batch: CollectiveBatch, place: str, problems: ProblemCollector) -> DataSource | None:
        dataset, count = batch.dataset, len(problems.problems)
        named = {part: getattr(dataset, part) for part in PARTS}
        paths = {
            part: problems.check(f"{place}.{part}", partial(find_data, name, part, self.roots))
            for part, name in named.items()
            if name is not None
        }
        settings = self._find_files(dataset.settings, place, problems)
        validation = problems.check(f"{place}.validation", lambda: self._find_validation(dataset.validation))
        if len(problems.problems) > count or validation is None:
            return None
        settings = settings.model_copy(update={"validation": validation})
        labelled = dataset.test is not None and not generated_count(dataset.test)
        return DataSource(
            train=paths.get("train"),
            test=paths.get("test"),
            unlabelled=paths.get("unlabelled"),
            settings=settings,
            labelled=labelled,
        )

    def _find_validation(self, validation: float | str) -> float | str:
        """Return the share of the training data as it is, or the path of the data below its root."""
        if isinstance(validation, float):
            return validation
        return str(self.roots.find(validation, PathKind.EITHER))

    def _find_files(self, settings: DataSettings, place: str, problems: ProblemCollector) -> DataSettings:
        """Return the settings with the paths of all files that they name below their roots."""

        def find(keys: Sequence[str], name: str) -> str:
            return str(problems.check(json_path(keys, place), partial(self.roots.find, name)))

        text, labels = settings.text, settings.labels
        if text is not None and text.vocabulary is not None:
            text = text.model_copy(update={"vocabulary": find(["text", "vocabulary"], text.vocabulary)})
        labels = labels and {
            output: find(["labels", *filter(None, [output])], named) if isinstance(named, str) else named
            for output, named in labels.items()
        }
        preparation = {
            name: prepared.with_vocabulary(partial(find, ["preparation", name, "tokens", "vocabulary"]))
            for name, prepared in settings.preparation.items()
        }
        code = self._find_code(settings, place, problems)
        files = {"text": text, "labels": labels, "preparation": preparation, "code": code}
        return settings.model_copy(update=files)

    def _find_code(
        self, settings: DataSettings, place: str, problems: ProblemCollector
    ) -> dict[str, CodeFile]:
        """Return the files with metrics and losses below their roots, with their digests, by name."""
        files: dict[str, CodeFile] = {}
        for keys, name in settings.named_in_code():
            path = problems.check(
                json_path(keys, place), partial(self._find_code_file, settings, keys[0], name)
            )
            if path is not None:
                files[name] = CodeFile(path=str(path), sha256=sha256(path.read_bytes()).hexdigest())
        return files

    def _find_code_file(self, settings: DataSettings, key: str, name: str) -> Path:
        file = settings.code[name]
        if not self.allow_code:
            group = LOSSES if key == "losses" else SCORES
            raise InvalidValue(
                f"{as_written(file.path)}:{name}",
                f"the name of an entry point of {group}, as this server runs no files that configs name",
                "install a plug-in beside the server; or, if all who may call it may run code there, "
                "start it with --allow-code (allow_code in a file)",
            )
        return self.roots.find(file.path)
