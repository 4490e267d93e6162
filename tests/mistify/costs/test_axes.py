"""Axes: built-in ones, those of plug-ins, and those where higher is better."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.config.reading import parse_batch
from mistify.costs.axes import (
    Axis,
    AxisRegistry,
    Condition,
    at_precision,
    axis_of,
    built_in_formats,
    depend_on_hardware,
    known_axes,
)
from mistify.costs.budget import (
    at_threads,
    axis_name,
    conditions_of,
    hardware_of,
    latency_axis,
    meets,
    memory_axis,
    of_package,
    source_axis,
    threads_of,
    tightest_ratio,
)
from mistify.costs.formats import AxisFormat, format_of
from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import NominalProfile
from mistify.costs.quantization import STORED, Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.goal_tree import GoalTree
from mistify.parsing.quantities import COUNT, Quantity, measured_in
from tests.support.plug_ins import COSTS, environment, install_example, installed

BOARD = NominalProfile("board", 1.0, 0.5)
NETWORK = NetworkCost(
    (LayerCost("dense", 1_000, 110, 110, (0,), 1, stored_biases=10),), (100, 10), (0,), (1,)
)
JOULES = measured_in({"mJ": 1e-3, "J": 1})
POSITIVE = st.floats(1e-3, 1e3).map(lambda figure: float(f"{figure:.6g}"))  # the reciprocals differ as well


def axis(cost=lambda network, at: 2.0, **changes):
    return Axis("energy", "energy_j", "energy", JOULES, cost, **changes)


SPEED = axis(lambda network, at: 50.0, higher_is_better=True)


def test_the_name_of_an_axis_lists_its_conditions():
    assert axis().name(Condition(Quantization.INT8, BOARD)) == "energy_j"
    assert axis(by_precision=True).name(Condition(Quantization.INT8_QAT, BOARD)) == "energy_j@int8"
    assert axis(by_hardware=True).name(Condition(Quantization.INT8, BOARD)) == "energy_j@board"
    both = axis(by_hardware=True, by_precision=True)
    assert both.name(Condition(Quantization.INT8, BOARD)) == "energy_j@board@int8"
    assert [name for name, _ in both.costs(NETWORK, [BOARD])] == [
        axis_name("energy_j", "board", precision) for precision in STORED
    ]


def test_axes_of_packages_with_integer_inputs_have_names_of_their_own():
    name = memory_axis(Quantization.INT8, integer_inputs=True)
    assert conditions_of(name) == (None, Quantization.INT8, 1, True)
    assert source_axis(name) == "memory_bytes"
    assert at_precision(name, Quantization.INT8) == name
    assert at_precision(name, Quantization.DYNAMIC) == "memory_bytes@dynamic"
    assert axis().named("board", Quantization.INT8, integer_inputs=True) == "energy_j"


def test_costs_of_a_package_leave_out_those_with_other_inputs():
    costs = {"flops": 1.0, "memory_bytes": 9.0, "memory_bytes@int8": 5.0, "memory_bytes@int8-inputs": 3.0}
    assert of_package(costs, integer_inputs=False) == {
        "flops": 1.0, "memory_bytes": 9.0, "memory_bytes@int8": 5.0,
    }  # fmt: skip
    assert of_package(costs, integer_inputs=True) == {
        "flops": 1.0, "memory_bytes": 9.0, "memory_bytes@int8-inputs": 3.0,
    }  # fmt: skip
    memory = format_of("memory_bytes", built_in_formats())
    assert memory.cost(of_package(costs, integer_inputs=True), "host", Quantization.INT8) == 3.0
    assert memory.on("memory_bytes@int8-inputs") == "memory in int8 with int8 inputs"


@pytest.mark.parametrize(
    ("hardware", "threads"), [(None, 1), ("board", 1), ("jetson-nano", 4), ("4-threads", 2)]
)
@pytest.mark.parametrize("precision", STORED)
def test_conditions_are_parsed_from_the_name(hardware, threads, precision):
    profile = hardware and at_threads(hardware, threads)
    name = axis_name("energy_j", profile, precision)
    assert conditions_of(name) == (hardware, precision, threads, False)
    assert conditions_of(name).profile == profile
    assert source_axis(name) == axis_name("energy_j", profile)
    assert hardware_of(name) is None
    assert hardware_of(axis_name("latency_ms", profile, precision)) == hardware


@pytest.mark.parametrize("precision", STORED)
@pytest.mark.parametrize("by_precision", [False, True])
def test_an_axis_depends_only_on_the_hardware_in_its_name(monkeypatch, by_precision, precision):
    known = AxisRegistry({"energy": axis(by_hardware=True, by_precision=by_precision)}, {})
    monkeypatch.setattr("mistify.costs.axes.axis_registry", lambda: known)
    for profile in ("board", "board@4-threads"):
        name = known.axes["energy"].named(profile, precision)
        names = (profile, "boards", "board@2-threads")
        assert [other for other in names if depend_on_hardware(["energy_j", name], other)] == [profile]


def test_an_axis_without_hardware_depends_on_none():
    assert not depend_on_hardware(["flops", "memory_bytes@int8"], "int8")


def test_a_single_thread_is_not_mentioned():
    assert latency_axis(at_threads("board", 1)) == "latency_ms@board"
    assert latency_axis(at_threads("board", 4), Quantization.INT8) == "latency_ms@board@4-threads@int8"
    latency = axis_of("latency_ms").format
    assert latency.on("latency_ms@board@int8") == "predicted latency on board in int8"
    assert (
        latency.on("latency_ms@board@4-threads@int8") == "predicted latency on board with 4 threads in int8"
    )
    assert latency.on("latency_ms@host@4-threads") == "latency on host with 4 threads"


def test_the_threads_of_a_goal_are_read_from_its_axes():
    assert threads_of([]) == threads_of(["flops", "latency_ms@host"]) == 1
    assert threads_of(["flops", "energy_j@host@4-threads", "memory_bytes@int8"]) == 4


@pytest.mark.parametrize(
    ("name", "at_int8"),
    [
        ("latency_ms@host@4-threads", "latency_ms@host@4-threads@int8"),
        ("latency_ms@jetson-nano@4-threads", "latency_ms@jetson-nano@4-threads"),
        ("memory_bytes", "memory_bytes@int8"),
    ],
)
def test_changing_the_precision_keeps_the_threads(name, at_int8):
    assert at_precision(name, Quantization.INT8) == at_int8
    assert at_precision(at_int8, Quantization.NONE) == name


def test_hardware_cannot_have_the_name_of_a_precision():
    config = {"id": "a", "model": "m", "dataset": {"train": "a", "test": "b"}}
    config |= {"adaptation_goal": {"latency": "1ms"}}
    config |= {"hardware": {"name": "Int8", "compute_power": 1, "memory_bandwidth": 1}}
    with pytest.raises(MistifyError, match="name it after a precision"):
        parse_batch(json.dumps(config))


def test_costs_depend_on_precision_and_hardware():
    watts = axis(lambda network, at: network.weight_bytes(at.precision) * at.hardware.compute_power)
    slow = NominalProfile("slow", 3.0, 1.0)
    both = axis(watts.cost, by_hardware=True, by_precision=True)
    costs = dict(both.costs(NETWORK, [BOARD, slow]))
    assert costs["energy_j@slow@int8"] == 3 * costs["energy_j@board@int8"] == 3 * (100 + 4 * 10)


@pytest.mark.parametrize("amount", [0, -1.0, math.nan, math.inf, "2", None, True])
def test_an_invalid_cost_is_an_error_that_names_the_metric(amount):
    with pytest.raises(MistifyError, match=r"metric energy is .*; expected a number above 0"):
        list(axis(lambda network, at: amount).costs(NETWORK, []))


def test_the_error_of_a_failing_metric_names_it():
    with pytest.raises(MistifyError, match=r"metric energy cannot measure .* ZeroDivisionError"):
        list(axis(lambda network, at: 1 / 0).costs(NETWORK, []))


def test_metrics_can_be_measured_on_packages():
    assert axis().measured(b"12345", Quantization.INT8) == {}
    assert axis(measure=len, by_precision=True).measured(b"12345", Quantization.INT8) == {
        "energy_j@int8": 5.0
    }
    assert axis_of("size_bytes").measured(b"12345", Quantization.NONE) == {"size_bytes": 5.0}


def test_hardware_dependent_metrics_are_measured_with_one_thread():
    here = axis(measure=len, by_hardware=True)
    assert here.measured(b"12345", Quantization.NONE) == {"energy_j@host": 5.0}
    assert here.measured(b"12345", Quantization.NONE, threads=4) == {}
    assert axis(measure=len).measured(b"12345", Quantization.NONE, threads=4) == {"energy_j": 5.0}


@given(st.lists(st.fixed_dictionaries({"energy": POSITIVE, "speed": POSITIVE}), min_size=1, max_size=12))
def test_tighter_goals_are_below_looser_ones(asked):
    """Goals are ordered by one metric where lower is better and one where higher is better."""
    budgets = [
        {"energy_j": goal["energy"], "1/energy_j": SPEED.limit(Quantity(goal["speed"])).value}
        for goal in asked
    ]
    tree = GoalTree.build(budgets)

    def looser(a, b):
        return a["energy"] >= b["energy"] and a["speed"] <= b["speed"]

    def distance(above, goal):
        return math.log(above["energy"] / goal["energy"]) + math.log(goal["speed"] / above["speed"])

    of_node = {tree.node_of(place): goal for place, goal in enumerate(asked)}
    for node, goal in of_node.items():
        above = [other for other in of_node.values() if other != goal and looser(other, goal)]
        parent = tree.parent(node)
        assert (parent is None) == (not above)
        if parent is not None:
            assert looser(of_node[parent], goal)
            assert distance(of_node[parent], goal) <= min(distance(other, goal) for other in above) + 1e-6


@given(POSITIVE, POSITIVE, st.booleans())
def test_a_limit_is_a_lower_bound_if_higher_is_better(amount, limit, relative):
    (name, cost), *_ = axis(lambda network, at: amount, higher_is_better=True).costs(NETWORK, [])
    asked = SPEED.limit(Quantity(limit, relative))
    budget = {name: asked.resolve(cost)}
    wanted = limit * amount if relative else limit
    (_, other), *_ = axis(lambda network, at: wanted, higher_is_better=True).costs(NETWORK, [])
    assert other == pytest.approx(budget[name])
    assert SPEED.format.converted(budget[name]) == pytest.approx(wanted)
    assert SPEED.limit(asked).value == pytest.approx(limit)
    if not math.isclose(amount, wanted):
        assert meets({name: cost}, budget) == (amount > wanted)


def test_costs_are_displayed_as_amounts():
    assert SPEED.format.amount(0.02) == "50J"
    assert SPEED.format.in_plain_unit(0.02) == "50 J"
    assert SPEED.format.name == "energy_j"
    assert SPEED.format.on("1/energy_j@board@int8") == "predicted energy on board in int8"
    assert axis_of("flops").format.in_plain_unit(12_500) == "12,500 multiply-adds"
    assert axis_of("memory_bytes@int8").format.in_plain_unit(1e6) == "1,000,000 B"


def test_an_axis_without_a_format_shows_its_name_and_plain_numbers():
    assert format_of("1/frames_per_s@board", []) == format_of("1/frames_per_s", [SPEED.format])
    assert format_of("1/frames_per_s", []).amount(0.02) == "50"
    assert format_of("1/energy_j@board", [SPEED.format]) == SPEED.format
    assert AxisFormat("a", "b", COUNT).on("a@int8") == "b in int8"


def test_an_axis_is_found_by_its_name():
    for known in known_axes():
        assert axis_of(known.name(Condition(Quantization.INT8, BOARD))) is known
    with pytest.raises(MistifyError, match="install the plug-in") as caught:
        axis_of("frames_per_s")
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("units", [{"J": 2}, {}, {"x": 1}, {"J": 1, "5m": 2}, {"J": 1, "mJ": 0}, {"": 1}])
def test_invalid_units_are_refused(units):
    with pytest.raises(ValueError, match="units"):
        measured_in(units)


CONFIG = {"id": "a", "model": "m", "dataset": {"train": "a", "test": "b"}}
ASK = """
import json, sys
from mistify.config.reading import goal_path, parse_batch
from mistify.errors import MistifyError
from mistify.costs.axes import known_axes
found = {"keys": [axis.key for axis in known_axes()]}
try:
    (config,) = parse_batch(sys.argv[1])
    found["limits"] = {axis: str(limit) for axis, limit in config.limits().items()}
    found["paths"] = [goal_path(axis) for axis in config.limits()]
    found["again"] = parse_batch(config.model_dump_json(exclude_unset=True)) == (config,)
except MistifyError as error:
    found["refused"] = str(error)
print(json.dumps(found))
"""


def read_with_plug_in(site: Path, **goal: object) -> dict[str, object]:
    """Return how a process with the plug-in reads a goal."""
    text = json.dumps({**CONFIG, "adaptation_goal": goal, "quantization": "int8"})
    run = subprocess.run(
        [sys.executable, "-c", ASK, text], capture_output=True, text=True, env=environment(site), check=True
    )
    return json.loads(run.stdout)


def test_an_installed_metric_becomes_a_key_of_configs(tmp_path):
    actual = read_with_plug_in(
        install_example(tmp_path, "traffic", COSTS), traffic="2 MB", energy="2 uJ", FLOP="0.5x"
    )
    assert actual["keys"][-2:] == ["energy", "traffic"]
    assert actual["limits"] == {
        "flops": str(Quantity(0.5, True)),
        "energy_mj@host@int8": str(Quantity(2e-3)),
        "traffic_bytes@int8": str(Quantity(2e6)),
    }
    keys = ("FLOP", "energy", "traffic")
    assert actual["paths"] == [f"adaptation_goal.{key}" for key in keys]
    assert actual["again"]
    text = str(read_with_plug_in(tmp_path, energy="2 kWh")["refused"])
    assert "[0].adaptation_goal.energy" in text
    assert "use nJ, uJ, mJ, J, x" in text


def test_a_plug_in_cannot_replace_an_axis_of_mistify(tmp_path):
    site = installed(
        tmp_path,
        "own_energy",
        "from mistify.costs.axes import Axis\nfrom mistify.parsing.quantities import COUNT\n"
        "ENERGY = Axis('energy', 'joules', 'joules', COUNT, lambda network, at: 1)\n",
        {"energy": "own_energy:ENERGY"},
    )
    assert read_with_plug_in(site, energy="2mJ")["limits"] == {"energy_mj@host@int8": str(Quantity(2.0))}


def test_goals_that_name_a_broken_plug_in_are_refused(tmp_path):
    module = (
        "from mistify.costs.axes import Axis\nfrom mistify.parsing.quantities import COUNT\n"
        "def axis(key, quantity):\n    return Axis(key, quantity, key, COUNT, lambda network, at: 1)\n"
        "other = axis('something', 'some')\nflops = axis('flops', 'flops')\ngood = axis('good', 'good')\n"
        "number = 3\n"
    )
    points = {"missing": "broken:nothing", "absent": "no_such_module:AXIS", "other": "broken:other"}
    points |= {"flops": "broken:flops", "number": "broken:number", "good": "broken:good"}
    site = installed(tmp_path, "broken", module, points)
    assert read_with_plug_in(site, good=5)["limits"] == {"good": str(Quantity(5.0))}
    for name, reason in {
        "missing": "AttributeError",
        "absent": "ModuleNotFoundError",
        "other": "entry point's name",
        "flops": "its quantity",
        "number": "is 3, not a mistify.costs.axes.Axis",
    }.items():
        refused = str(read_with_plug_in(site, **{name: 5})["refused"])
        assert f"[0].adaptation_goal.{name}: got 5; expected the name of a metric that can be used" in refused
        assert reason in refused


def test_a_client_accepts_metrics_that_only_the_server_may_know():
    text = json.dumps({**CONFIG, "adaptation_goal": {"traffic": "2 MB"}})
    (config,) = parse_batch(text, server_knows_more=True)
    assert config.model_dump(mode="json", exclude_unset=True)["adaptation_goal"] == {"traffic": "2 MB"}
    assert config.limits() == {}
    with pytest.raises(MistifyError, match="one of FLOP, accuracy"):
        parse_batch(text)


def test_the_remaining_share_is_that_of_the_tightest_limit():
    assert tightest_ratio({"FLOPs": 100.0, "params": 40.0}, {"FLOPs": 50.0, "params": 10.0}) == 0.25
    assert tightest_ratio({"FLOPs": 100.0}, {"FLOPs": 200.0}) == 1.0
    assert tightest_ratio({"energy_j": 0.0, "FLOPs": 100.0}, {"energy_j": 1.0, "FLOPs": 80.0}) == 0.8
