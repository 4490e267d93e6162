"""A cost metric of a plug-in on the server, which the client lacks, and the energy: goals that limit them."""

import json
import re
import subprocess
from math import prod
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from mistify.errors import MistifyError
from mistify_client.rpc.porting import PortingClient
from tests.support.networks import two_convolutions
from tests.support.plug_ins import COSTS, environment, install_example
from tests.support.servers import MISTIFY, server

pytestmark = pytest.mark.slow

QUICK = {"source_steps": 0, "adapt_steps": 8, "cuts": 2, "tune_steps": 2, "max_steps": 10}
ALGORITHMS = {
    "morphnet": QUICK,
    "chamnet": {**QUICK, "init_population": 2, "samples": 1, "cuts": 1},
}

#: The algorithm of each goal, and the axis that it limits.
LIMITED = {"energy": ("morphnet", "energy_mj@host"), "traffic": ("chamnet", "traffic_bytes")}

#: The energy of a multiplication and an addition (Horowitz, ISSCC 2014), and of reading 32 bits from DRAM
#: as a multiple of it.
MULTIPLY_ADD_MJ, DRAM = 4.6e-9, 200


def configs(goals: dict[str, tuple[str, dict[str, str]]]) -> str:
    data = {"train": "builtin:digits-train", "test": "builtin:digits-test"}
    return json.dumps(
        [
            {
                "id": name,
                "model": "tiny.keras",
                "dataset": data,
                "algorithm": {"name": algorithm, "config": ALGORITHMS[algorithm]},
                "adaptation_goal": goal,
            }
            for name, (algorithm, goal) in goals.items()
        ]
    )


def port(config: str, out: Path, address: str) -> subprocess.CompletedProcess[str]:
    """Run `mistify port` as a client without the plug-in."""
    out.mkdir()
    (out / "goals.json").write_text(config)
    command = [MISTIFY, "port", out / "goals.json", "--out", out, "--server", address]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)


def plan(config: Path, address: str) -> dict[str, Any]:
    """Return the output of `mistify plan` for a client without the plug-in."""
    command = [MISTIFY, "plan", config, "--json", "--server", address]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refusal(address: str, goal: dict[str, str]) -> str:
    with PortingClient(address) as client, pytest.raises(MistifyError) as caught:
        client.submit(configs({"refused": ("morphnet", goal)}), "")
    return str(caught.value)


def amounts(network: bytes) -> dict[str, float]:
    """Compute the energy and the memory traffic of a float32 network from the operators in the file."""
    interpreter = tf.lite.Interpreter(model_content=network)
    interpreter.allocate_tensors()
    shapes = {tensor["index"]: tensor["shape"].tolist() for tensor in interpreter.get_tensor_details()}
    multiplied = written = 0
    constants: dict[int, int] = {}
    for operator in interpreter._get_ops_details():
        output = shapes[operator["outputs"][0]]
        name, (_, *weights) = operator["op_name"], operator["inputs"]
        if name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
            constants |= {index: prod(shapes[index]) for index in weights}
            multiplied += prod(shapes[weights[0]]) * prod(output[1:-1])
        if name not in ("RESHAPE", "DELEGATE"):
            written += prod(output)
    read = sum(constants.values())
    return {
        "energy_mj": MULTIPLY_ADD_MJ * (multiplied + DRAM * read),
        "traffic_bytes": 4 * (read + 2 * written),
    }


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, str, dict[str, Any]]:
    base = tmp_path_factory.mktemp("axes")
    goals = {key: (name, {key: "0.5x"}) for key, (name, _) in LIMITED.items()}
    two_convolutions().save(base / "tiny.keras")
    site = install_example(base / "site", "traffic", COSTS)
    with server(base / "store", "--data-root", base, environment=environment(site)) as (address, _):
        done = port(configs(goals), base / "out", address)
        planned = plan(base / "out" / "goals.json", address)
        wrong = (
            {"energy": "1nJ"},
            {"traffic": "1B"},
            {"trafic": "2MB"},
            {"energy": "2 kWh"},
            {"energy": "0mJ"},
        )
        reported = [refusal(address, goal) for goal in wrong]
    assert done.returncode == 0, done.stdout + done.stderr
    return (
        json.loads((base / "out" / "report.json").read_text()),
        base / "out",
        "\n".join([done.stdout, *reported]),
        planned,
    )


@pytest.mark.parametrize("key", LIMITED)
def test_a_goal_with_only_such_a_limit_is_met(ported: Any, key: str) -> None:
    report, out, *_ = ported
    _, axis = LIMITED[key]
    quantity = axis.partition("@")[0]
    goal = next(goal for goal in report["goals"] if goal["id"] == key)
    limit = goal["budget"][axis]
    assert limit == pytest.approx(0.5 * report["source"][quantity])
    actual = amounts((out / "goals" / key / "serve.tflite").read_bytes())[quantity]
    assert goal["met"]
    assert actual <= limit
    assert actual == pytest.approx(goal["achieved"][quantity], rel=0.02)
    assert actual > 0.8 * limit


def test_reports_show_amounts_with_their_units(ported: Any) -> None:
    report, _, output, _ = ported
    assert report["metrics"] == {
        "energy_mj": {"label": "energy (estimated)", "unit": "mJ"},
        "traffic_bytes": {"label": "memory traffic", "unit": "B"},
    }
    assert "energy (estimated) on host 4" in output
    assert "memory traffic 4" in output


def test_the_basis_of_an_energy_is_reported(ported: Any) -> None:
    report, *_ = ported
    notes = {goal["id"]: goal["note"] for goal in report["goals"]}
    assert "the energy on host from published ratios" in notes["energy"]
    assert "energy" not in notes["traffic"]


def test_a_plan_predicts_the_limited_costs(ported: Any) -> None:
    report, _, _, planned = ported
    edges = [edge for batch in planned["batches"] for edge in batch["edges"]]
    assert {edge["goals"][0]: edge["budget"] for edge in edges} == {
        key: {axis: pytest.approx(0.5 * report["source"][axis.partition("@")[0]])}
        for key, (_, axis) in LIMITED.items()
    }


def test_wrong_limits_are_reported_in_the_units_of_the_metric(ported: Any) -> None:
    _, _, output, _ = ported
    for reported in (
        r"\[0\]\.adaptation_goal\.energy: got 1e-06 mJ; expected at least [0-9.e-]+ mJ, the least",
        r"\[0\]\.adaptation_goal\.traffic: got 1 B; expected at least [0-9,]+ B, the least",
        r'\[0\]\.adaptation_goal\.energy: got "2 kWh"; expected an energy such as "2mJ"',
        r'\[0\]\.adaptation_goal\.energy: got "0mJ"; expected ',
    ):
        assert re.search(reported, output)


def test_an_unknown_metric_is_reported_with_the_known_ones(ported: Any) -> None:
    _, _, output, _ = ported
    known = "FLOP, accuracy, energy, latency, memory, num_of_params, size, traffic"
    assert f'[0].adaptation_goal.trafic: got the key "trafic"; expected one of {known}' in output
    assert 'did you mean "traffic"?' in output
