"""Devices registered at a real server by a real client."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from mistify.costs.devices import DeviceTable
from mistify.costs.latency import routine_of
from mistify.errors import ErrorCode, MistifyError
from mistify.profiling.measuring import measure_device
from mistify.profiling.samples import Chain, samples
from mistify.v1.devices_pb2_grpc import DevicesStub
from mistify.wire import devices as wire
from mistify_client.rpc.devices import DevicesClient
from mistify_server.hardware.fitting import fitted

#: The latency of the source on the device according to the scripted worker.
ON_BOARD = {"latency_ms@my-board": 8.0, "latency_ms@my-board@int8": 4.0}


def some_of_each(integer: bool) -> Iterator[Chain]:
    """Return one network for every routine, and those with several operators."""
    known: set[str] = set()
    for chain in samples(integer=integer):
        routines = {routine_of(operation) for operation in chain}
        if len(chain) > 1 or not routines <= known:
            yield chain
        known |= routines


@pytest.fixture(scope="module")
def table() -> DeviceTable:
    """Measure this machine quickly."""
    return measure_device("my-board", [1], chains=some_of_each, budget_seconds=1e-3)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of this machine's profile."""
    path = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    return path


async def register(address: str, table: DeviceTable) -> Any:
    with DevicesClient(address) as client:
        return await asyncio.to_thread(client.register, table)


async def listed(address: str) -> Any:
    with DevicesClient(address) as client:
        return await asyncio.to_thread(client.devices)


def write_model(site: Any) -> None:
    costs = {"flops": 1e4, "params": 1e3, "memory_bytes": 8e3, "size_bytes": 6e3}
    site.write("model.json", {"costs": {**costs, **ON_BOARD}, "floor": {"flops": 100.0}})


async def test_a_device_is_registered_and_listed(caller: Any, table: DeviceTable) -> None:
    device = await register(caller.address, table)
    assert (device.name, device.machine, device.runtime) == ("my-board", table.machine, table.runtime)
    assert [(setting.integer, setting.threads) for setting in device.settings] == [(False, 1), (True, 1)]
    assert await listed(caller.address) == [device]
    again = await register(caller.address, replace(table, machine="another processor"))
    assert await listed(caller.address) == [again]


async def test_the_profile_of_this_machine_is_shared_by_all_stores(
    caller: Any, site: Any, table: DeviceTable, tmp_path: Path, serving_at: Any
) -> None:
    board = await register(caller.address, table)
    here = await register(caller.address, replace(table, name="host"))
    assert (here.name, here.machine) == ("host", table.machine)
    assert await listed(caller.address) == [here, board]
    async with serving_at(replace(site.settings(), store=tmp_path / "another")) as other:
        assert await listed(other.address) == [here]


async def test_another_machine_does_not_replace_this_one(caller: Any, table: DeviceTable) -> None:
    with pytest.raises(MistifyError) as caught:
        await register(
            caller.address, replace(table, name="host", machine="aarch64 board", runtime="LiteRT 1")
        )
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert [(problem.place, problem.value, problem.expected) for problem in caught.value.problems] == [
        ("machine", "aarch64 board", table.machine),
        ("runtime", "LiteRT 1", table.runtime),
    ]
    assert await listed(caller.address) == []


async def test_goals_require_a_number_of_threads_that_the_device_was_measured_with(
    caller: Any, site: Any, table: DeviceTable, make_config: Callable[..., dict[str, object]]
) -> None:
    """Each number of threads has its own predictions and corrections."""
    readings = [replace(reading, threads=threads) for threads in (4, 1) for reading in table.readings]
    await register(caller.address, replace(table, readings=tuple(readings)))
    four = {f"latency_ms@my-board@4-threads{at}": 2.0 for at in ("", "@int8")}
    site.write("model.json", {"costs": {"flops": 1e4, **ON_BOARD, **four}, "floor": {}})

    def config(name: str, threads: int) -> dict[str, object]:
        of_goal = {"hardware": "my-board", "quantization": "none", "threads": threads}
        return {**make_config(name, latency="0.5x"), **of_goal}

    with pytest.raises(MistifyError) as caught:
        await caller.submit([config("one", 1), config("two", 2)])
    (problem,) = caught.value.problems
    assert (problem.place, problem.value) == ("[1].threads", "2")
    assert problem.expected == "1 or 4, with which my-board was measured"
    assert problem.fix.endswith("mistify profile-device --name my-board --threads 1,2,4")
    job = await caller.submit([config("one", 1), config("four", 4)])
    assert [(goal.spec.threads, dict(goal.spec.budget)) for goal in job.goals] == [
        (1, {"latency_ms@my-board": 4.0}),
        (4, {"latency_ms@my-board@4-threads": 1.0}),
    ]
    own = {f"my-board{threads}{at}" for threads in ("", "@4-threads") for at in ("", "@int8")}
    assert set(site.tasks("inspect")[-1]["recipe"]["hardware"]) == {"host", "host@4-threads", *own}
    await caller.finished(job.id)
    assert {task["spec"]["threads"] for task in site.tasks("package")} == {1, 4}
    with DevicesClient(caller.address) as client:
        reported = await asyncio.to_thread(client.report, "my-board", job.id, "four", 2.0)
    assert (reported.predicted_ms, reported.factor) == (1.0, pytest.approx(2 ** (1 / 3)))
    later = await caller.submit([config("later", 1), config("later-4", 4)])
    hardware = site.tasks("inspect")[-1]["recipe"]["hardware"]
    assert hardware["my-board"]["factor"] == 1.0
    assert hardware["my-board@4-threads"]["factor"] == reported.factor
    await caller.finished(later.id)


async def test_goals_with_other_threads_can_be_added(
    caller: Any, site: Any, table: DeviceTable, make_config: Callable[..., dict[str, object]]
) -> None:
    """The job's profile is for one thread."""
    readings = [replace(reading, threads=threads) for threads in (4, 1) for reading in table.readings]
    await register(caller.address, replace(table, readings=tuple(readings)))
    own = {"hardware": "my-board", "quantization": "none"}
    write_model(site)
    job = await caller.submit([{**make_config("one", latency="4ms"), **own}])
    with pytest.raises(MistifyError, match=r"\[0\].threads: got 2"):
        await caller.add(job.id, [{**make_config("two", latency="1ms"), **own, "threads": 2}])
    site.write("model.json", {"costs": {"latency_ms@my-board@4-threads": 2.0}, "floor": {}})
    grown = await caller.add(job.id, [{**make_config("four", latency="1ms"), **own, "threads": 4}])
    assert (grown.goals[1].parent, dict(grown.goals[1].spec.budget)) == (
        None,
        {"latency_ms@my-board@4-threads": 1.0},
    )
    await caller.finished(job.id)


async def test_devices_survive_a_restart(site: Any, serving_at: Any, table: DeviceTable) -> None:
    async with serving_at(site.settings()) as first:
        device = await register(first.address, table)
    async with serving_at(site.settings()) as second:
        assert await listed(second.address) == [device]


async def test_an_invalid_table_is_refused_with_the_place_of_the_mistake(
    caller: Any, table: DeviceTable
) -> None:
    device = await register(caller.address, table)
    readings = list(table.readings)
    readings[7] = replace(readings[7], median_ms=-1.0)
    with pytest.raises(MistifyError) as caught:
        await register(caller.address, replace(table, readings=tuple(readings)))
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert [problem.place for problem in caught.value.problems] == ["readings[7].median_ms"]
    assert await listed(caller.address) == [device]


async def test_an_interrupted_registration_leaves_no_device(
    site: Any, serving_at: Any, table: DeviceTable, monkeypatch: pytest.MonkeyPatch, wait_until: Any
) -> None:
    """The server stops during fitting; the connection breaks."""
    began, go_on = threading.Event(), threading.Event()

    def held(inputs: DeviceTable) -> Any:
        began.set()
        go_on.wait(30)
        return fitted(inputs)

    monkeypatch.setattr("mistify_server.hardware.service.fitted", held)
    async with serving_at(site.settings()) as first:
        call = DevicesStub(first.channel).RegisterDevice(wire.table_to_proto(table))
        waiting = asyncio.ensure_future(call.code())
        await wait_until(began.is_set)
    assert await waiting is not grpc.StatusCode.OK
    go_on.set()
    async with serving_at(site.settings()) as second:
        assert await listed(second.address) == []
        monkeypatch.undo()
        await register(second.address, table)
        # Another test may have measured this machine meanwhile.
        names = [device.name for device in await listed(second.address)]
        assert names.count("my-board") == 1


async def test_goals_may_name_devices_known_to_the_server(
    caller: Any, site: Any, table: DeviceTable, make_config: Callable[..., dict[str, object]]
) -> None:
    """Each precision has its own table, and relative limits refer to the source in float32."""
    write_model(site)
    configs = [
        {**make_config("float", latency="0.5x"), "hardware": "My Board", "quantization": "none"},
        {**make_config("int", latency="0.25x"), "hardware": "my-board", "quantization": "int8"},
    ]
    with pytest.raises(MistifyError) as caught:
        await caller.submit(configs)
    assert [problem.place for problem in caught.value.problems] == ["[0].hardware", "[1].hardware"]
    assert "jetson-nano" in caught.value.problems[0].expected
    await register(caller.address, table)
    with pytest.raises(MistifyError, match=r'of the measured devices my-board.*did you mean "my-board"'):
        await caller.submit(
            [{**make_config("typo", latency="0.5x"), "hardware": "my-bord", "quantization": "none"}]
        )
    job = await caller.submit(configs)
    assert [dict(goal.spec.budget) for goal in job.goals] == [
        {"latency_ms@my-board": 4.0},
        {"latency_ms@my-board@int8": 2.0},
    ]
    (inspected,) = site.tasks("inspect")
    assert set(inspected["recipe"]["hardware"]) == {"host", "my-board", "my-board@int8"}
    assert inspected["recipe"]["hardware"]["my-board@int8"]["kind"] == "measured"
    await caller.finished(job.id)


async def test_goals_for_a_device_can_be_added(
    caller: Any, site: Any, table: DeviceTable, make_config: Callable[..., dict[str, object]]
) -> None:
    job = await caller.submit([make_config("a", FLOP="0.5x")])
    later = [{**make_config("b", latency="1ms"), "hardware": "my-board", "quantization": "none"}]
    with pytest.raises(MistifyError, match=r"\[0\].hardware: got \"my-board\""):
        await caller.add(job.id, later)
    await register(caller.address, table)
    write_model(site)
    grown = await caller.add(job.id, later)
    assert dict(grown.goals[1].spec.budget) == {"latency_ms@my-board": 1.0}
    await caller.finished(job.id)


async def test_predictions_are_corrected_by_measured_packages(
    caller: Any, site: Any, table: DeviceTable, make_config: Callable[..., dict[str, object]]
) -> None:
    """Three packages that take twice the predicted latency count for three fifths, more packages for more."""
    await register(caller.address, table)
    write_model(site)
    configs = [
        {
            **make_config(f"goal-{share}", latency=f"0.{share}x"),
            "hardware": "my-board",
            "quantization": "none",
        }
        for share in (7, 5, 3)
    ]
    job = await caller.submit(configs)
    await caller.finished(job.id)
    with DevicesClient(caller.address) as client:
        for number, share in enumerate((7, 5, 3), 1):
            reported = await asyncio.to_thread(
                client.report, "my-board", job.id, f"goal-{share}", 1.6 * share
            )
            assert reported.predicted_ms == pytest.approx(0.8 * share)
            assert reported.factor == pytest.approx(2 ** (number / (number + 2)))
        again = await asyncio.to_thread(client.report, "my-board", job.id, "goal-3", 4.8)
        assert again.factor == pytest.approx(2**0.6)
        for wrong, code in (
            (("my-bord", job.id, "goal-3", 1.0), ErrorCode.NOT_FOUND),
            (("my-board", job.id, "goal-9", 1.0), ErrorCode.NOT_FOUND),
            (("my-board", job.id, "goal-3", 0.0), ErrorCode.INVALID_CONFIG),
        ):
            with pytest.raises(MistifyError) as caught:
                await asyncio.to_thread(client.report, *wrong)
            assert caught.value.code is code
    later = await caller.submit(
        [{**make_config("later", latency="0.7x"), "hardware": "my-board", "quantization": "none"}]
    )
    inspected = site.tasks("inspect")[-1]["recipe"]["hardware"]
    assert inspected["my-board"]["factor"] == pytest.approx(2**0.6)
    assert inspected["my-board@int8"]["factor"] == 1.0
    await caller.finished(later.id)


async def test_measured_packages_do_not_count_after_a_new_registration(
    caller: Any, site: Any, table: DeviceTable, make_config: Callable[..., dict[str, object]]
) -> None:
    """Registering the same table again keeps them, because it gives the same models."""
    await register(caller.address, table)
    write_model(site)
    before = await caller.submit(
        [{**make_config("goal", latency="0.5x"), "hardware": "my-board", "quantization": "none"}]
    )
    await caller.finished(before.id)
    with DevicesClient(caller.address) as client:
        for taken_ms in (8.0, 6.4):
            await register(caller.address, table)
            reported = await asyncio.to_thread(client.report, "my-board", before.id, "goal", taken_ms)
            assert reported.factor == pytest.approx((taken_ms / 4) ** (1 / 3))
        slower = [replace(reading, median_ms=2 * reading.median_ms) for reading in table.readings]
        await register(caller.address, replace(table, readings=tuple(slower)))
        with pytest.raises(MistifyError, match="my-board has been measured again since") as caught:
            await asyncio.to_thread(client.report, "my-board", before.id, "goal", 8.0)
        assert caught.value.code is ErrorCode.NOT_FOUND
    after = await caller.submit(
        [{**make_config("later", latency="0.5x"), "hardware": "my-board", "quantization": "none"}]
    )
    assert site.tasks("inspect")[-1]["recipe"]["hardware"]["my-board"]["factor"] == 1.0
    await caller.finished(after.id)
