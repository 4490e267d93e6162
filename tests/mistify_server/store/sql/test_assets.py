"""Stores written by every schema version (`assets/make.py`), opened by the current version."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from mistify.config.package.compression import CompressionConfig
from mistify.costs.devices import Device, DeviceTable
from mistify.costs.profiles import MeasuredProfile
from mistify.costs.quantization import Quantization
from mistify.fleet import LastSwitch
from mistify.jobs.job import BranchFigures, GoalState, JobState, ProgressUpdate
from mistify.jobs.package_spec import PackageSpec
from mistify_server.store.directory import Store, open_store
from mistify_server.store.edges import EdgeRecord
from mistify_server.store.plans import BatchPlan
from mistify_server.store.sql.migrations.migrate import SCHEMA_VERSION
from mistify_server.store.sql.migrations.steps import OLDEST
from mistify_server.tasks.results import BranchResult, PrepareResult, SourceResult
from tests.support.paths import REPOSITORY
from tests.support.stored import VERSIONS, jobs_in, restore
from tests.support.targets import overall

#: Edges of older versions, which made choices on test data, are dropped.
EDGES_KEPT = 17

#: The first schema whose asset has signed packages, with one more file.
SIGNED = 32

#: The last schema in which a fleet's options were numbers.
LAST_WITHOUT_IDS = 23
DEVICE_STATES = REPOSITORY / "tests" / "data" / "device_state_1"

JSON_COLUMNS = {
    ("batches", "plan"): BatchPlan,
    ("batches", "preparations"): dict[str, PrepareResult],
    ("batches", "root"): SourceResult,
    ("branches", "result"): BranchResult,
    ("devices", "device"): Device,
    ("devices", "profiles"): list[MeasuredProfile],
    ("devices", "readings"): DeviceTable,
    ("edges", "record"): EdgeRecord,
    ("events", "body"): ProgressUpdate,
    ("goals", "branch_figures"): list[BranchFigures],
    ("goals", "spec"): PackageSpec,
}


@pytest.fixture(scope="module", params=VERSIONS, ids="v{}".format)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def directory(version: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a store as an earlier version wrote it; tests only read the migrated store."""
    directory = tmp_path_factory.mktemp(f"v{version}")
    restore(version, directory)
    return directory


@pytest.fixture(scope="module")
def store(directory: Path) -> Iterator[Store]:
    with open_store(directory) as opened:
        yield opened


@pytest.fixture
def migrated(directory: Path, store: Store) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(directory / "mistify.db")) as connection:
        yield connection


def columns(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return columns, foreign keys and unique columns by table, independent of their order."""
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {
        table: (
            {column[1:] for column in connection.execute(f"PRAGMA table_info({table})")},
            {key[2:] for key in connection.execute(f"PRAGMA foreign_key_list({table})")},
            {
                (unique, *connection.execute(f"PRAGMA index_info({index})").fetchall())
                for _, index, unique, *_ in connection.execute(f"PRAGMA index_list({table})")
            },
        )
        for table in tables
    }


def test_every_older_version_has_an_asset() -> None:
    assert set(VERSIONS) >= set(range(OLDEST, SCHEMA_VERSION))


def test_a_migrated_store_has_the_tables_of_a_new_one(migrated: sqlite3.Connection, tmp_path: Path) -> None:
    with open_store(tmp_path / "new"), closing(sqlite3.connect(tmp_path / "new" / "mistify.db")) as new:
        assert columns(migrated) == columns(new)


@pytest.mark.parametrize(("table", "column"), JSON_COLUMNS, ids=".".join)
def test_migrated_json_equals_what_the_current_version_writes(
    migrated: sqlite3.Connection, version: int, table: str, column: str
) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(JSON_COLUMNS[table, column])
    chosen = "WHERE kind = 'progress'" if table == "events" else f"WHERE json({column}) != 'null'"
    texts = [text for (text,) in migrated.execute(f"SELECT {column} FROM {table} {chosen}")]  # noqa: S608
    assert bool(texts) is (table != "edges" or version >= EDGES_KEPT)
    for text in texts:
        value = json.loads(text)
        assert adapter.dump_python(adapter.validate_python(value), mode="json", by_alias=True) == value


def test_a_migrated_job_can_be_read(store: Store, version: int) -> None:
    (job,) = jobs_in(store)
    assert (job.state, job.reason) == (JobState.DONE, "")
    assert job.sources[0].costs["flops"] == 779_904
    files = 3 if version >= SIGNED else 2
    assert [
        (
            goal.id,
            goal.state,
            goal.parent,
            goal.spec.quantization.precision,
            len(goal.branch_figures),
            len(goal.files),
        )
        for goal in job.goals
    ] == [
        ("half", GoalState.MET, None, Quantization.NONE, 0, files),
        ("small", GoalState.UNMET, "switching", Quantization.INT8, 0, files),
        ("switching", GoalState.MET, "half", Quantization.NONE, 2, files),
        ("board", GoalState.MET, None, Quantization.NONE, 0, files),
        ("sparse", GoalState.MET, "half", Quantization.NONE, 0, files),
    ]
    half, small, _, board, sparse = job.goals
    assert half.spec.budget == {"flops": 389_952}
    assert half.achieved["flops"] <= 389_952
    assert half.accuracy == pytest.approx(0.98, abs=0.01)
    assert (small.spec.targets, small.steps) == (overall(0.999), 40)
    where = "on the validation data " if version >= EDGES_KEPT else ""
    assert small.reason.endswith(f"below 0.9990 {where}after 40 steps")
    assert list(board.spec.budget) == ["latency_ms@raspberry-pi"]
    assert sparse.spec.compression == CompressionConfig(sparsity=0.5)
    assert sparse.achieved["zero_share"] == pytest.approx(0.5, abs=0.01)


def test_a_migrated_plan_can_be_read(store: Store, version: int) -> None:
    (job,) = jobs_in(store, 1)
    (state,) = store.jobs.batches(job.id)
    plan = state.plan
    recipe = plan.recipe
    assert (plan.model_name, recipe.algorithm, recipe.seed) == ("digits-resnet", "morphnet", 1_599_064_001)
    assert recipe.settings == {"source_steps": 20, "adapt_steps": 10, "tune_steps": 10, "max_steps": 40}
    assert {node.goals: node.parent for node in plan.nodes}[("half",)] is None
    assert {"host", "my-board", "raspberry-pi"} <= set(recipe.hardware)
    assert plan.estimates is not None
    assert (plan.estimates.source_steps, plan.estimates.features.kind) == (20, "convolutional")
    assert state.root is not None
    assert state.root.steps == 20
    assert set(state.checkpoints) == {node.index for node in plan.nodes}
    assert len(state.branches["switching"].branches) == 2
    edges = store.jobs.edges("", "convolutional", 9)
    assert [edge.case.algorithm for edge in edges] == ["morphnet"] * (5 if version >= EDGES_KEPT else 0)


def test_migrated_events_can_be_read(store: Store) -> None:
    (job,) = jobs_in(store, 1)
    events = store.jobs.events(job.id, 0, 999)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.event for event in events if isinstance(event.event, JobState)] == [
        *(JobState.QUEUED, JobState.RUNNING, JobState.DONE),
    ] * 2
    states = [(event.goal_id, event.event) for event in events if isinstance(event.event, GoalState)]
    assert len(states) == 12
    assert ("small", GoalState.UNMET) in states
    updates = [event.event for event in events if isinstance(event.event, ProgressUpdate)]
    assert {update.stage for update in updates} >= {"starting", "adapting", "tuning", "packaging"}


def test_migrated_models_groups_and_devices_can_be_read(store: Store) -> None:
    (job,) = jobs_in(store, 1)
    (model,) = store.models.all()
    assert (model.name, model.artifact) == ("Tiny", model.file_name)
    (group,) = store.tuning.groups()
    assert (group.name, group.job_id) == ("home", job.id)
    assert group.settings == {"location_km": 1, "time_hours": 24}
    (device,) = store.devices.all()
    assert [(setting.integer, setting.threads) for setting in device.settings] == [(False, 1), (True, 1)]
    assert {profile.name: profile.factor == 1 for profile in store.devices.profiles("my-board")} == {
        "my-board": False,
        "my-board@int8": True,
    }
    assert len(store.devices.table("my-board").readings) > 100


@pytest.mark.parametrize(("side", "kind"), [("branches", "branch"), ("subnets", "subnet")])
def test_devices_recorded_before_options_had_ids_can_be_read(tmp_path: Path, side: str, kind: str) -> None:
    restore(LAST_WITHOUT_IDS, tmp_path)
    status = json.loads((DEVICE_STATES / side / "fleet_row.json").read_bytes())
    with closing(sqlite3.connect(tmp_path / "mistify.db")) as connection:
        row = (status["name"], json.dumps(status), 1_790_000_000_000)
        connection.execute("INSERT INTO fleet (name, status, seen_unix_ms) VALUES (?, ?, ?)", row)
        connection.commit()
    with open_store(tmp_path) as store:
        (report,) = store.fleet.all()
    previous = LastSwitch(status["last_switch"]["unix_ms"], f"{kind}-1", status["last_switch"]["reason"])
    assert report.status.last_switch == previous
    assert (report.status.option, report.status.options) == (f"{kind}-0", status["branches"])
    assert report.status.reason == status["reason"]
