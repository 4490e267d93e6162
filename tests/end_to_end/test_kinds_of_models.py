"""Models of many kinds, each ported to half of its multiply-adds by an embedded server."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import jaccard_score

from mistify.config.data.metric import Metric
from mistify_client import load
from tests.support.kinds_of_models import KINDS, OWN, SUBCLASSED, write_kind
from tests.support.plug_ins import LAYERS, LOSSES, METRICS, environment, install_example, installed
from tests.support.servers import MISTIFY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

#: Settings with few steps.
SETTINGS = {"source_steps": 160, "adapt_steps": 30, "cuts": 3, "tune_steps": 80, "max_steps": 80}
SETTINGS |= {"optimizer": "adam", "batch_size": 32}


def found(boxes: Any, true: Any) -> float:
    """Return the share of boxes that overlap the true ones by at least half."""

    def area(sides: Any) -> Any:
        return np.clip(sides, 0, None).prod(axis=-1)

    sides = np.minimum(boxes[..., 2:], true[..., 2:]) - np.maximum(boxes[..., :2], true[..., :2])
    either = area(boxes[..., 2:] - boxes[..., :2]) + area(true[..., 2:] - true[..., :2]) - area(sides)
    return float(np.mean(area(sides) / either >= 0.5))


#: The metrics of the outputs, as functions of predictions and targets.
COUNTED: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": lambda predicted, true: (predicted.argmax(axis=-1) == true).mean(),
    "mse": lambda predicted, true: np.square(predicted.reshape(true.shape) - true).mean(),
    "mean_iou": lambda predicted, true: jaccard_score(
        true.ravel(), predicted.argmax(axis=-1).ravel(), average="macro"
    ),
    "boxes_found": found,
}


def sites(directory: Path) -> list[Path]:
    """Install the plug-ins that some kinds need."""
    return [
        install_example(directory / "losses", "losses", LOSSES),
        install_example(directory / "metrics", "metrics", METRICS),
        installed(directory / "own", OWN, SUBCLASSED, {OWN: OWN}, LAYERS),
    ]


@pytest.fixture(scope="module", params=KINDS)
def ported(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, str]:
    """Return the name of a kind, the directory of its ported job, and the command's output."""
    base = tmp_path_factory.mktemp("kind")
    plug_ins = sites(base / "plug-ins")
    with pytest.MonkeyPatch.context() as patch:
        for site in plug_ins:
            patch.syspath_prepend(site)
        write_kind(KINDS[request.param], base, SETTINGS)
    command = [MISTIFY, "port", base / "goals.json", "--out", base / "out"]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(*plug_ins), check=False, cwd=base
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return request.param, base, done.stdout


def test_the_package_has_half_the_multiply_adds_and_each_output_its_metric(ported: Any) -> None:
    name, base, printed = ported
    report = json.loads((base / "out/report.json").read_text())
    (goal,) = report["goals"]
    assert goal["met"]
    assert goal["achieved"]["flops"] <= 0.5 * report["source"]["flops"]
    scores = {score["output"]: score for score in goal["outputs"]}
    for output, (metric, least) in KINDS[name].least.items():
        score = scores[output] if output else next(iter(scores.values()))
        assert score["metric"] == metric
        assert Metric(metric).reaches(score["value"], least), score
        assert Metric(metric).shown(score["value"]) in printed
    assert len(scores) == len(KINDS[name].least)


def test_reported_metrics_match_the_package(ported: Any) -> None:
    """The metrics are recomputed from the package's predictions on the test data."""
    _, base, _ = ported
    test = np.load(base / "test.npz")
    model = load(base / "out/goals/half")
    (goal,) = json.loads((base / "out/report.json").read_text())["goals"]
    scores = {score["output"]: score for score in goal["outputs"]}
    inputs = {key: test[key] for key in test.files if key not in (*scores, "y")}
    predicted = model(**inputs)
    predicted = predicted if isinstance(predicted, dict) else {next(iter(scores)): predicted}
    assert predicted.keys() == scores.keys()
    for output, score in scores.items():
        target = test[output] if output in test.files else test["y"]
        counted = COUNTED[score["metric"]](np.asarray(predicted[output]), target)
        assert counted == pytest.approx(score["value"], rel=1e-3)
