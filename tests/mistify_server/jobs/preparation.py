"""Submissions to a store, whose model and data have been inspected."""

import asyncio
import json
from pathlib import Path
from typing import Any

from mistify.config.data.metric import Metric
from mistify_server.engines.local import LocalEngine
from mistify_server.grouped_calls import GroupedCalls
from mistify_server.identity.callers import LOCAL
from mistify_server.jobs.inspection_turns import InspectionTurns
from mistify_server.jobs.preparing import Outcome, PreparedJobs, Request
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.inspector import BatchInspector
from mistify_server.planning.known_inspections import KnownInspections
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.planning.lookup.reading import read_and_resolve
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.store.directory import Store
from mistify_server.tasks.results import Inspection, Result
from tests.mistify_server.planning.forecast.batches import PROSPECTS, SOURCE
from tests.support.callers import called_by

INSPECTION = Inspection(costs=SOURCE, floor={"flops": 1e2}, estimates=PROSPECTS, metric=Metric.ACCURACY)


def text(flop: str, **changes: object) -> str:
    config = {
        "id": "goal",
        "model": "digits-resnet",
        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
        "algorithm": {"name": "morphnet"},
        "adaptation_goal": {"FLOP": flop},
    }
    return json.dumps([{**config, **changes}])


class Preparing:
    """The preparation of submissions to a store, whose only model and data have been inspected."""

    def __init__(self, store: Store, directory: Path) -> None:
        models = ModelRepository(store.models, store.artifacts)
        self.known = KnownInspections(store.inspections)
        self.resolver = BatchResolver(models, DataRoots.of([], directory), store.devices)
        # Its workers are not needed, and none is started.
        engine = LocalEngine(["no-such-worker"], directory)
        inspector = BatchInspector(engine, self.known, InspectionTurns(1).take)
        self.jobs = PreparedJobs(store, self.resolver, inspector, 1_000)
        self.of = self.jobs.of
        self._together: GroupedCalls[Request, Outcome] = GroupedCalls(self.jobs.outcomes)

    async def inspect(self, config_text: str, inspection: Inspection = INSPECTION) -> None:
        async def made() -> Result:
            return inspection

        (batch,) = self.resolved(config_text)
        with called_by(LOCAL):
            assert await self.known.result(batch.inspect_task(), made) == inspection

    def resolved(self, config_text: str) -> list[ResolvedBatch]:
        return read_and_resolve(config_text, self.resolver, 10)[1]

    async def all(self, *requests: Request) -> list[Any]:
        return await asyncio.gather(*map(self._together, requests), return_exceptions=True)
