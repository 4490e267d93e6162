"""Goals for other hardware that are added to a job: what has to be profiled, once."""

from collections.abc import Callable
from typing import Any

from tests.mistify_server.outcomes import failure, parents

Config = Callable[..., dict[str, object]]


async def test_new_hardware_is_profiled_once(caller: Any, site: Any, make_config: Config) -> None:
    latency = {f"latency_ms@{name}": 8.0 for name in ("jetson-nano", "raspberry-pi", "host")}
    floor = {"flops": 100.0, "latency_ms@jetson-nano": 1.0}
    site.write("model.json", {"costs": {"flops": 10_000.0, **latency}, "floor": floor})
    job = await caller.submit([{**make_config("a", FLOP="0.5x"), "hardware": "raspberry-pi"}])
    await caller.finished(job.id)
    nano = {"hardware": "jetson-nano"}
    error = await failure(caller.add(job.id, [{**make_config("b", latency="0.5ms"), **nano}]))
    assert [problem.place for problem in error.problems] == ["[0].adaptation_goal.latency"]
    await caller.add(job.id, [{**make_config("b", latency="0.5x"), **nano}])
    await caller.finished(job.id)
    await caller.add(job.id, [{**make_config("c", latency="0.25x"), **nano}, make_config("d", FLOP="0.4x")])
    job = await caller.finished(job.id)
    assert [sorted(task["recipe"]["hardware"]) for task in site.tasks("inspect")] == [
        ["host", "raspberry-pi"],
        ["host", "jetson-nano"],
    ]
    known = [sorted(task["recipe"]["hardware"]) for task in site.tasks("adapt")]
    assert known == [
        ["host", "raspberry-pi"],
        *[["host", "jetson-nano", "raspberry-pi"]] * 3,
    ]
    assert parents(job) == {"a": None, "b": None, "c": "b", "d": "a"}
    assert job.goals[1].spec.budget == {"latency_ms@jetson-nano": 4.0}


async def test_this_machine_is_profiled_once_with_other_threads(
    caller: Any, site: Any, make_config: Config
) -> None:
    one = {f"latency_ms@{name}": 8.0 for name in ("host", "host@int8")}
    four = {f"latency_ms@{name}": 2.0 for name in ("host@4-threads", "host@4-threads@int8")}

    def config(name: str, threads: int, latency: str) -> dict[str, Any]:
        return {**make_config(name, latency=latency), "quantization": "none", "threads": threads}

    site.write("model.json", {"costs": {"flops": 1e4, **one}, "floor": {}})
    job = await caller.submit([config("a", 1, "0.9x")])
    await caller.finished(job.id)
    site.write("model.json", {"costs": {"flops": 1e4, **one, **four}, "floor": {}})
    for name, latency in (("b", "0.9x"), ("c", "0.8x")):
        await caller.add(job.id, [config(name, 4, latency)])
        job = await caller.finished(job.id)
    assert [(sorted(task["recipe"]["hardware"]), task["measures"]) for task in site.tasks("inspect")] == [
        (["host"], ["host"]),
        (["host", "host@4-threads"], ["host"]),
    ]
    assert parents(job) == {"a": None, "b": None, "c": "b"}
    assert job.goals[1].spec.budget == {"latency_ms@host@4-threads": 1.8}
    assert [goal.spec.threads for goal in job.goals] == [1, 4, 4]


async def test_a_machine_profiled_only_in_float32_is_profiled_for_its_first_limit(
    caller: Any, site: Any, make_config: Config
) -> None:
    """With each number of threads, because the job has float32 latencies for all of them."""
    known = {"flops": 1e4, "latency_ms@host": 8.0, "latency_ms@host@4-threads": 2.0}

    def config(name: str, threads: int, **limits: str) -> dict[str, Any]:
        return {**make_config(name, **limits), "quantization": "none", "threads": threads}

    site.write("model.json", {"costs": known, "floor": {}})
    job = await caller.submit([config("a", 1, FLOP="0.5x"), config("b", 4, FLOP="0.4x")])
    for threads, name in ((1, "host@int8"), (4, "host@4-threads@int8")):
        site.write("model.json", {"costs": {**known, f"latency_ms@{name}": 1.0}, "floor": {}})
        await caller.add(job.id, [config(name.replace("@", "-"), threads, latency="0.9x")])
    await caller.finished(job.id)
    assert [task["measures"] for task in site.tasks("inspect")][1:] == [["host"], ["host"]]
