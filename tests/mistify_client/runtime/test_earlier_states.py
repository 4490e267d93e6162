"""Device states written before options had ids, when numbers identified branches and subnets.

`tests/data/device_state_1/` has the state that a monitor wrote then for a package with three branches, and
for one with a pool of two subnets, after switching from the second subnet to the first.
"""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mistify.fleet import LastSwitch, check_status
from mistify.package.opened import Package
from mistify.v1 import devices_pb2
from mistify.wire.devices import status_from_proto
from mistify_client import load
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.pool import POOL, SubnetPool
from mistify_client.cli.main import app
from mistify_client.monitor.state.state import MonitorState
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.pools import SUBNETS, make_block_package

KINDS = {"branches": "branch", "subnets": "subnet"}


@pytest.fixture
def before(data: Path) -> Path:
    return data / "device_state_1"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    return make_block_package(tmp_path / "package")


def restored(before: Path, package: Path, execution: str) -> None:
    """Give a package the pool and the switchboard of the earlier version."""
    pool = json.loads((before / "pool.json").read_bytes())
    pool |= {"store": Package.open(package).blocks_digest, "execution": execution, "threads": 2}
    state_directory(package).mkdir()
    (state_directory(package) / POOL).write_text(json.dumps(pool))
    shutil.copy(before / "subnets" / "switchboard", state_directory(package))


@pytest.mark.parametrize("execution", Execution)
def test_subnets_get_the_engine_of_their_pool(before, package, execution):
    restored(before, package, execution)
    pool = SubnetPool.load(state_directory(package), Package.open(package))
    engine = Engine(execution=execution, threads=2)
    assert pool is not None
    assert pool.entries == tuple(entry.model_copy(update={"engine": engine}) for entry in SUBNETS)
    assert (pool.budget_ms, pool.metric, pool.data, pool.generation) == (20.0, "agreement", "mine.npz", 0)
    pool.save(state_directory(package))
    assert SubnetPool.load(state_directory(package), Package.open(package)) == pool


def test_an_option_chosen_by_number_runs(before, package):
    restored(before, package, "interpreter")
    Switchboard.open(state_directory(package)).option = 0
    model = load(package)
    assert (model.wanted, model.running) == ("subnet-0", "subnet-0")
    assert {option.engine.threads for option in model.options} == {2}


@pytest.mark.parametrize("side", KINDS)
def test_an_earlier_status_is_shown_in_the_current_form(before, package, side):
    state = MonitorState.of(package)
    state.directory.mkdir(parents=True)
    shutil.copy(before / side / "status.json", state.status)
    shutil.copy(before / side / "decisions.jsonl", state.log)
    shown = CliRunner().invoke(app, ["status", "--package", str(package)])
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    kind, measure = KINDS[side], {"branches": "accuracy", "subnets": "agreement"}[side]
    assert f"* {kind}-0: 12ms now, 4ms expected, {measure} 0.7" in lines
    assert f"  {kind}-1: 30ms now, 10ms expected, {measure}" in shown.stdout
    as_json = json.loads(CliRunner().invoke(app, ["status", "--json", "--package", str(package)]).stdout)
    assert as_json["option"] == f"{kind}-0"
    assert [option["predicted_ms"] for option in as_json["options"]][:2] == [12.0, 30.0]


@pytest.mark.parametrize("side", KINDS)
def test_a_report_identifies_options_by_ids(before, side):
    message = devices_pb2.DeviceStatus.FromString((before / side / "report.pb").read_bytes())
    kept = json.loads((before / side / "fleet_row.json").read_bytes())
    status = status_from_proto(message)
    check_status(status)
    kind = KINDS[side]
    assert (status.option, status.options) == (f"{kind}-0", kept["branches"])
    switch = kept["last_switch"]
    assert status.last_switch == LastSwitch(switch["unix_ms"], f"{kind}-1", switch["reason"])
    assert (status.latency_ms, status.targets, status.reason) == (12.0, {"latency": "20ms"}, kept["reason"])
