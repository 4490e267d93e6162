"""A cost metric of a plug-in on the server, which the client lacks: goals that limit energy."""

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

#: Picojoules (Horowitz, ISSCC 2014): a float multiplication and addition, 32 bits of DRAM, and of SRAM.
FLOAT, DRAM, SRAM = 3.7 + 0.9, 640, 5


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


def energy_mj(network: bytes) -> float:
    """Compute the energy of a float32 network from the operators in the file."""
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
    return (FLOAT * multiplied + DRAM * sum(constants.values()) + 2 * SRAM * written) / 1e9


@pytest.fixture(scope="module")
def ported(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path, str, dict[str, Any]]:
    base = tmp_path_factory.mktemp("energy")
    goals = {name: (name, {"energy": "0.5x"}) for name in ALGORITHMS}
    two_convolutions().save(base / "tiny.keras")
    site = install_example(base / "site", "energy", COSTS)
    with server(base / "store", "--data-root", base, environment=environment(site)) as (address, _):
        done = port(configs(goals), base / "out", address)
        planned = plan(base / "out" / "goals.json", address)
        reported = [refusal(address, {"energy": "1nJ"}), refusal(address, {"enrgy": "2mJ"})]
    assert done.returncode == 0, done.stdout + done.stderr
    return (
        json.loads((base / "out" / "report.json").read_text()),
        base / "out",
        "\n".join([done.stdout, *reported]),
        planned,
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_goal_with_only_an_energy_limit_is_met(ported: Any, algorithm: str) -> None:
    report, out, *_ = ported
    goal = next(goal for goal in report["goals"] if goal["id"] == algorithm)
    limit = goal["budget"]["energy_mj@host"]
    assert limit == pytest.approx(0.5 * report["source"]["energy_mj"])
    actual = energy_mj((out / "goals" / algorithm / "serve.tflite").read_bytes())
    assert goal["met"]
    assert actual <= limit
    assert actual == pytest.approx(goal["achieved"]["energy_mj"], rel=0.02)
    assert actual > 0.8 * limit


def test_reports_show_energy_with_its_unit(ported: Any) -> None:
    report, _, output, _ = ported
    assert report["metrics"] == {"energy_mj": {"label": "energy (estimated)", "unit": "mJ"}}
    assert "energy (estimated) on host 4" in output


def test_a_plan_predicts_energy(ported: Any) -> None:
    report, _, _, planned = ported
    limit = pytest.approx(0.5 * report["source"]["energy_mj"])
    edges = [edge for batch in planned["batches"] for edge in batch["edges"]]
    assert {edge["goals"][0]: edge["budget"] for edge in edges} == {
        name: {"energy_mj@host": limit} for name in ALGORITHMS
    }


def test_impossible_limits_are_reported_in_the_unit_of_the_metric(ported: Any) -> None:
    _, _, output, _ = ported
    reported = r"\[0\]\.adaptation_goal\.energy: got 1e-06 mJ; expected at least [0-9.e-]+ mJ, the least"
    assert re.search(reported, output)


def test_an_unknown_metric_is_reported_with_the_known_ones(ported: Any) -> None:
    _, _, output, _ = ported
    known = "FLOP, accuracy, energy, latency, memory, num_of_params, size"
    assert f'[0].adaptation_goal.enrgy: got the key "enrgy"; expected one of {known}' in output
    assert 'did you mean "energy"?' in output
