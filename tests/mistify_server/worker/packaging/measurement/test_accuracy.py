"""The number of examples on which a package's accuracy is measured."""

import keras
import numpy as np
import pytest

from executors.data import Dataset
from executors.outputs.objectives import objectives_of
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify_server.tasks.sources import DataSource
from mistify_server.worker.packaging.measurement import accuracy
from mistify_server.worker.packaging.measurement.accuracy import MeasuredAccuracy, measure_accuracy

#: Every fifth example belongs to the other class.
CLASSES = np.tile([0, 0, 0, 0, 1], 8)


class OneByOne:
    """A package with perfect predictions that runs examples one by one."""

    outputs = ("y",)

    def examples_at_once(self, most: int) -> int:
        return 1

    def __call__(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"y": inputs["x"]}


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time limit expire as soon as one example has been run."""
    monkeypatch.setattr(accuracy, "_MAX_SECONDS", 0.0)


def measured(metric: Metric, classes: np.ndarray) -> MeasuredAccuracy:
    data = Dataset({"x": classes[:, None].astype(np.float32)}, {"y": classes})
    inputs = keras.Input((1,), name="x")
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid", name="y")(inputs))
    source = DataSource(train="a", test="b", settings=DataSettings(metric=metric))
    return measure_accuracy(OneByOne(), data, objectives_of(model, data), source)  # type: ignore[arg-type]


@pytest.mark.usefixtures("late")
def test_no_more_examples_are_run_once_time_is_up() -> None:
    assert measured(Metric.ACCURACY, CLASSES).examples == 1


@pytest.mark.usefixtures("late")
def test_examples_are_run_until_the_metric_is_defined() -> None:
    """An area under a curve requires examples of both classes."""
    figure = measured(Metric.ROC_AUC, CLASSES)
    order = np.random.default_rng(0).permutation(len(CLASSES))
    assert figure.accuracy == 1.0
    assert set(CLASSES[order[: figure.examples]]) == {0, 1}
    assert len(set(CLASSES[order[: figure.examples - 1]])) == 1


@pytest.mark.usefixtures("late")
def test_a_metric_undefined_on_all_examples_is_not_awaited() -> None:
    figure = measured(Metric.ROC_AUC, np.zeros(4, int))
    assert np.isnan(figure.accuracy)
    assert figure.examples == 4


def test_all_examples_are_run_while_there_is_time() -> None:
    assert measured(Metric.ACCURACY, CLASSES).examples == len(CLASSES)
