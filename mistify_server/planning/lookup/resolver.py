"""Resolution: models, data and devices that the configs name are looked up."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from mistify.config.dataset import DataSettings, generated_count
from mistify.config.reading import CollectiveBatch
from mistify.parsing.validation import json_path
from mistify_server.devices.naming import find_devices
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.lookup.algorithms import check_algorithm
from mistify_server.planning.lookup.data_roots import DataRoots, PathKind
from mistify_server.planning.lookup.models import PARTS, ModelRepository, find_data, find_model
from mistify_server.store.devices import DeviceStore
from mistify_server.tasks.problems import ProblemCollector
from mistify_server.tasks.sources import DataSource


@dataclass(frozen=True)
class BatchResolver:
    """Finds the models, data and devices of batches by their names; no file is read and no worker asked."""

    models: ModelRepository
    roots: DataRoots
    devices: DeviceStore

    def resolve(self, batches: Sequence[CollectiveBatch], problems: ProblemCollector) -> list[ResolvedBatch]:
        """Return the batches of which every name is known.

        Args:
            batches: With the names.
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
        return settings.model_copy(update={"text": text, "labels": labels, "preparation": preparation})
