"""Contract tests for all metrics of outputs, built-in ones and those of plug-ins."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as reference

from executors.outputs.metrics import check_output_metric, measured, score
from executors.outputs.objectives import Binary, Categorical, Regression
from executors.outputs.plugged_in import (
    METRICS,
    OutputKind,
    OutputMetric,
    code_from,
    plugged_in,
    plugged_in_loss,
    plugged_in_score,
)
from executors.structure.signature import Activation
from mistify.config.data.code import CodeFile
from mistify.config.data.metric import Metric, known_metrics
from mistify.errors import MistifyError
from mistify.parsing.validation import InvalidValue
from tests.support.plug_ins import install_example, installed

CLASSES, YES_OR_NO, FIGURES = (
    Categorical(Activation.SOFTMAX),
    Binary(Activation.SIGMOID),
    Regression(Activation.NONE),
)
OWN = [name for name in known_metrics() if not Metric(name).of_all_outputs]

#: Metrics of outputs of classes, in the order in which they are suggested.
OF_CLASSES = ["accuracy", "agreement", "balanced_accuracy", "balanced_agreement"]


@pytest.fixture(autouse=True)
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(install_example(tmp_path / "site", "metrics", METRICS))


def answers(objective, rng, count=60):
    """Return targets, perfect predictions, and predictions that get worse with the number of wrong ones."""
    if objective is FIGURES:
        targets = rng.normal(size=(count, 1)).astype(np.float32)
        return targets, targets, lambda wrong: targets + 3 * (np.arange(count) < wrong)[:, None]
    several = objective is CLASSES
    targets = rng.permutation(np.arange(count) % (4 if several else 2))

    def predicted(classes):
        if several:
            return 0.7 * np.eye(4, dtype=np.float32)[classes] + 0.2 * np.eye(4)[(classes + 1) % 4] + 0.025
        return np.where(classes, 0.9, 0.1)[:, None].astype(np.float32)

    def worse(wrong):
        return predicted(
            np.where(np.arange(count) < wrong, (targets + 2) % 4 if several else 1 - targets, targets)
        )

    return targets if several else targets[:, None], predicted(targets), worse


@pytest.mark.parametrize("name", [*OWN, "top_two", "pinball_error"])
def test_a_metric_is_best_for_perfect_predictions_and_worsens_with_mistakes(name):
    metric, suited = Metric(name), 0
    for objective in (CLASSES, YES_OR_NO, FIGURES):
        try:
            measured(metric, {"y": objective})
        except InvalidValue:
            continue
        if metric is Metric.MEAN_IOU and objective is YES_OR_NO:
            continue  # of images
        suited += 1
        targets, right, worse = answers(objective, np.random.default_rng(0))
        figures = [
            score(metric, {"y": objective}, {"y": predicted}, {"y": targets})
            for predicted in (right, worse(12), worse(30))
        ]
        assert figures[0] == pytest.approx(metric.perfect)
        assert metric.better(figures[0], figures[1])
        assert metric.better(figures[1], figures[2])
        assert all(metric.reaches(figure, metric.worst) for figure in figures)
        order = np.random.default_rng(1).permutation(len(targets))
        shuffled = score(metric, {"y": objective}, {"y": worse(30)[order]}, {"y": targets[order]})
        assert shuffled == pytest.approx(figures[2])
    assert suited


def test_the_metrics_of_the_example_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    targets, predicted = rng.normal(size=(2, 40, 1)).astype(np.float32)
    pinball = score(Metric("pinball_error"), {"y": FIGURES}, {"y": predicted}, {"y": targets})
    assert pinball == pytest.approx(reference.mean_pinball_loss(targets, predicted, alpha=0.9), rel=1e-5)
    kinds, chances = rng.integers(4, size=40), rng.dirichlet(np.ones(4), size=40).astype(np.float32)
    first = score(Metric("top_two"), {"y": CLASSES}, {"y": chances}, {"y": kinds})
    assert first == pytest.approx(reference.top_k_accuracy_score(kinds, chances, k=2))


def test_a_metric_is_refused_for_outputs_that_it_does_not_suit():
    check_output_metric("y", Metric("pinball_error"), {"y": FIGURES}, {})
    for name, objective in (("pinball_error", CLASSES), ("top_two", FIGURES), ("top_two", YES_OR_NO)):
        with pytest.raises(InvalidValue, match="there is no output of the kind"):
            check_output_metric("y", Metric(name), {"y": objective}, {})


@pytest.mark.parametrize(
    ("name", "objectives", "offered"),
    [
        ("top_two", {"y": YES_OR_NO}, [*OF_CLASSES, "f1"]),
        ("top_two", {"y": FIGURES}, ["mse", "mae"]),
        ("top_two", {"y": FIGURES, "z": FIGURES}, ["mse", "mae", "mean_score"]),
        ("mse", {"y": CLASSES}, [*OF_CLASSES, "f1"]),
    ],
)
def test_suitable_metrics_are_suggested_instead_of_one_that_suits_no_output(name, objectives, offered):
    with pytest.raises(InvalidValue, match="there is no output of the kind") as caught:
        measured(Metric(name), objectives)
    named = caught.value.expected.removeprefix("one of ").split(", ")
    assert named[: len(offered)] == offered
    assert all(measured(Metric(other), objectives) for other in named)
    assert "mean_score" not in named or len(objectives) > 1


def test_unusable_plug_ins_are_refused_with_the_reason(tmp_path, monkeypatch):
    module = (
        "from executors.outputs.plugged_in import OutputKind, OutputMetric\n"
        "class Half(OutputMetric):\n    kinds = (OutputKind.FIGURES,)\n"
        "class Nothing(OutputMetric):\n    kinds = ()\n"
        "    def score(self, predictions, targets): return 0.0\n"
        "class Wild(OutputMetric):\n    kinds = (OutputKind.FIGURES,)\n"
        "    def score(self, predictions, targets): return -1.0\n"
    )
    points = {"half": "bad:Half", "nothing": "bad:Nothing", "absent": "bad:Absent", "wild": "bad:Wild"}
    points |= {"other": "bad:OutputKind"}
    monkeypatch.syspath_prepend(installed(tmp_path / "bad", "bad", module, points, METRICS))
    for name, reason in {
        "half": "abstract",
        "nothing": "names no kinds",
        "absent": "AttributeError",
        "other": "no executors.outputs.plugged_in.OutputMetric",
        "gone": "install the plug-in",
    }.items():
        with pytest.raises(InvalidValue, match=f'"{name}".*{re.escape(reason)}'):
            check_output_metric("y", Metric(name), {"y": FIGURES}, {})
    ones = {"y": np.ones((3, 1), np.float32)}
    with pytest.raises(MistifyError, match=r"wild is -1\.0; expected a share from 0 to 1"):
        score(Metric("wild"), {"y": FIGURES}, ones, ones)


def test_a_metric_receives_whole_vectors():
    """Boxes at several positions of an example, with overlaps counted by hand."""
    true = np.array([[[0, 0, 2, 2], [1, 1, 3, 3]], [[0, 0, 4, 1], [2, 2, 4, 4]]], np.float32)
    predicted = true.copy()
    predicted[0, 1] = [1, 1, 3, 2]  # half of the box
    predicted[1, 0] = [2.1, 0, 4, 1]  # less than half
    predicted[1, 1] = [5, 5, 6, 6]  # elsewhere
    found = score(Metric("boxes_found"), {"y": FIGURES}, {"y": predicted}, {"y": true})
    assert found == pytest.approx(2 / 4)
    with pytest.raises(InvalidValue, match="there is no output of the kind"):
        check_output_metric("y", Metric("boxes_found"), {"y": CLASSES}, {})


def test_the_error_of_a_failing_metric_names_it(tmp_path, monkeypatch):
    module = (
        "from executors.outputs.plugged_in import OutputKind, OutputMetric\n"
        "class Fails(OutputMetric):\n    kinds = (OutputKind.FIGURES,)\n"
        "    def score(self, predictions, targets): return 1 / 0\n"
    )
    site = installed(tmp_path / "fails", "fails", module, {"fails": "fails:Fails"}, METRICS)
    monkeypatch.syspath_prepend(site)
    ones = {"y": np.ones((3, 1), np.float32)}
    with pytest.raises(MistifyError, match="the plug-in's metric fails fails: ZeroDivisionError"):
        score(Metric("fails"), {"y": FIGURES}, ones, ones)


def test_a_metric_without_a_score_method_cannot_be_created():
    with pytest.raises(TypeError, match="abstract"):
        OutputMetric()


FILE = """
from executors.outputs.plugged_in import OutputKind, OutputMetric

def share(predictions, targets):
    return float((predictions.argmax(axis=1) == targets).mean())

class Boxes(OutputMetric):
    kinds = (OutputKind.VECTORS,)
    def score(self, predictions, targets):
        return 0.25

boxes, figure = Boxes, 3
"""


def code_file(path, content):
    path.write_text(content)
    return CodeFile(path=str(path), sha256=hashlib.sha256(content.encode()).hexdigest())


def test_metrics_can_be_functions_or_classes_in_files(tmp_path):
    file = code_file(tmp_path / "scores.py", FILE)
    with code_from(dict.fromkeys(("share", "boxes"), file)):
        predictions = np.eye(3)[[0, 1, 2, 2]]
        assert plugged_in_score(Metric("share"), predictions, np.array([0, 1, 2, 0])) == 0.75
        assert plugged_in(Metric("share")).kinds != plugged_in(Metric("boxes")).kinds == (OutputKind.VECTORS,)
    with pytest.raises(InvalidValue, match="install the plug-in"):
        plugged_in(Metric("share"))


def test_a_changed_file_is_loaded_again_for_a_later_job(tmp_path):
    for answer in (0.25, 0.5):
        file = code_file(tmp_path / "scores.py", f"def share(predictions, targets): return {answer}")
        with code_from({"share": file}):
            assert plugged_in_score(Metric("share"), np.zeros(1), np.zeros(1)) == answer


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("figure = 3", "a function, or a class"),
        ("import no_such_module", "fix the file: ModuleNotFoundError"),
        ("def other(): pass", "fix the file: KeyError"),
        ("def figure(:", "fix the file: SyntaxError"),
    ],
)
def test_unusable_files_are_refused_with_the_reason(tmp_path, content, reason):
    file = code_file(tmp_path / "scores.py", content)
    with code_from({"figure": file}), pytest.raises(InvalidValue, match=reason):
        plugged_in(Metric("figure"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("kinds = (OutputKind.FIGURES,)", "fix the file: TypeError.*abstract"),
        ("def score(self, predictions, targets): return 0.0", "fix the file: AttributeError.*kinds"),
        ("kinds = ()\n    def score(self, predictions, targets): return 0.0", "fix the file: .*no kinds"),
        ("def __init__(self): self.x = 1 / 0\n    score = len", "fix the file: ZeroDivisionError"),
    ],
)
def test_unusable_classes_in_files_are_refused_with_the_reason(tmp_path, body, reason):
    imports = "from executors.outputs.plugged_in import OutputKind, OutputMetric\n"
    file = code_file(tmp_path / "scores.py", f"{imports}class figure(OutputMetric):\n    {body}\n")
    with code_from({"figure": file}), pytest.raises(InvalidValue, match=reason):
        plugged_in(Metric("figure"))


def test_a_file_changed_after_submission_is_not_run(tmp_path):
    file = code_file(tmp_path / "losses.py", "def own(predictions, targets, counts): return 0.0")
    (tmp_path / "losses.py").write_text("raise SystemExit")
    with code_from({"own": file}), pytest.raises(InvalidValue, match="as it was when the job was submitted"):
        plugged_in_loss("own")
