"""A device is measured, named in a goal, and reports its latency, using only the command line."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from pydantic import TypeAdapter

from mistify.costs.devices import DeviceTable, Power
from mistify.costs.operators import Operation, OperatorKind
from mistify.files.writing import write_json
from mistify.parsing.quantities import parse_time
from tests.support.boards import table, taken
from tests.support.networks import two_convolutions
from tests.support.servers import MISTIFY, server

QUICK = {"source_steps": 0, "adapt_steps": 8, "cuts": 2, "tune_steps": 2, "max_steps": 10}


SOURCE = (
    Operation(OperatorKind.CONVOLUTION, 64, 1, 32, 9),
    Operation(OperatorKind.CONVOLUTION, 36, 32, 32, 9),
    Operation(OperatorKind.MEAN, 1, 32, 32, stride=36),
    Operation(OperatorKind.DENSE, 1, 32, 10),
    Operation(OperatorKind.SOFTMAX, 1, 10, 10),
)


def latency_ms(network: bytes) -> float:
    """Compute the latency on the device from the operators in the file."""
    interpreter = tf.lite.Interpreter(
        model_content=network,
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    shapes = {tensor["index"]: tensor["shape"].tolist() for tensor in interpreter.get_tensor_details()}

    def operations() -> Iterator[Operation]:
        for operator in interpreter._get_ops_details():
            source, output = shapes[operator["inputs"][0]], shapes[operator["outputs"][0]]
            channels = output[-1]
            match operator["op_name"]:
                case "CONV_2D":
                    _, *kernel, read = shapes[operator["inputs"][1]]
                    yield Operation(OperatorKind.CONVOLUTION, prod(output[:-1]), read, channels, prod(kernel))
                case "FULLY_CONNECTED":
                    yield Operation(OperatorKind.DENSE, 1, source[-1], channels)
                case "MEAN":
                    yield Operation(OperatorKind.MEAN, 1, channels, channels, stride=prod(source[1:-1]))
                case "SOFTMAX":
                    yield Operation(OperatorKind.SOFTMAX, 1, channels, channels)
                case other:
                    raise AssertionError(other)

    return taken(tuple(operations()), False) / 1e3


def mistify(*arguments: str | Path) -> str:
    done = subprocess.run([MISTIFY, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def report_of(out: Path, address: str, **goal: Any) -> dict[str, Any]:
    """Return the report of a job with one goal."""
    out.mkdir()
    config = {
        "id": "mine",
        "model": "tiny.keras",
        "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
        "algorithm": {"name": "morphnet", "config": QUICK},
        **goal,
    }
    (out / "goals.json").write_text(json.dumps([config]))
    mistify("port", out / "goals.json", "--out", out, "--server", address)
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


def monitor_status(package: Path, address: str) -> str:
    """Return a monitor's status of the package whose latency it reported."""
    config = package.parent / "monitor.toml"
    config.write_text(f'[reporting]\nserver = "{address}"\ndevice = "my-board"\nfree = 0.0\nquiet = "1ms"\n')
    command = [MISTIFY, "monitor", "--package", package, "--config", config]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        entries = map(json.loads, process.stdout)
        try:
            return next(entry["reason"] for entry in entries if entry["event"] == "latency")
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def expected_message(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return a job with a goal on the device, the latency reported for its package, and a later plan."""
    base = tmp_path_factory.mktemp("devices")
    two_convolutions().save(base / "tiny.keras")
    measured = replace(table(), powers=(Power(False, 1, 2.5), Power(True, 1, 1.5)))
    write_json(base / "table.json", TypeAdapter(DeviceTable).dump_python(measured, mode="json"))
    goal = {"adaptation_goal": {"latency": "0.6x"}, "hardware": "my-board"}
    with server(base / "store", "--data-root", base) as (address, _):
        mistify("profile-device", "--name", "my-board", "--table", base / "table.json", "--server", address)
        listed = mistify("devices", "--server", address)
        before = report_of(base / "before", address, **goal)
        package = base / "before" / "goals" / "mine"
        refined = mistify("report-latency", "--device", "my-board", "--package", package, "--server", address)
        reported = monitor_status(package, address)
        after = json.loads(mistify("plan", base / "before" / "goals.json", "--json", "--server", address))
    file = (package / "serve.tflite").read_bytes()
    return {
        "listed": listed,
        "before": before,
        "refined": refined,
        "reported": reported,
        "after": after,
        "file": file,
    }


def limit_of(report: dict[str, Any]) -> float:
    """Return a limit of 0.6 of the source's latency."""
    (goal,) = report["goals"]
    limit: float = goal["budget"]["latency_ms@my-board"]
    return limit


def test_a_goal_for_the_device_is_met_there(expected_message: dict[str, Any]) -> None:
    (goal,) = expected_message["before"]["goals"]
    limit, predicted = limit_of(expected_message["before"]), goal["achieved"]["latency_ms"]
    assert limit == pytest.approx(0.6 * taken(SOURCE, False) / 1e3, rel=0.03)
    assert goal["met"]
    # Only whole tiles can be cut from so small a network.
    assert 0.7 * limit < predicted <= limit
    assert latency_ms(expected_message["file"]) == pytest.approx(predicted, rel=0.03)


def test_the_device_is_listed(expected_message: dict[str, Any]) -> None:
    assert "my-board" in expected_message["listed"]
    assert "2.5 W" in expected_message["listed"]


def test_the_reported_latency_of_a_package_corrects_predictions(expected_message: dict[str, Any]) -> None:
    (goal,) = expected_message["before"]["goals"]
    for message in expected_message["refined"], expected_message["reported"]:
        taken_by, predicted_as = message.split(";")[0].split(", predicted ")
        took, predicted = parse_time(taken_by).value, parse_time(predicted_as).value
        factor = float(message.split()[-1])
        assert predicted == pytest.approx(goal["achieved"]["latency_ms"], rel=1e-3)
        assert factor != 1
        assert (factor > 1) == (took > predicted)
    (batch,) = expected_message["after"]["batches"]
    (edge,) = batch["edges"]
    after = edge["budget"]["latency_ms@my-board"]
    assert after / limit_of(expected_message["before"]) == pytest.approx(factor, rel=0.01)
