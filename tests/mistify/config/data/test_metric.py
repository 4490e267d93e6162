"""Names of metrics: built-in ones, and those of plug-ins, which state whether higher is better."""

import copy
import json
import pickle
import warnings
from importlib.metadata import entry_points

import pytest
from pydantic import TypeAdapter

from mistify import plugins
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric, OutputScore
from mistify.config.reading import parse_batch
from mistify.errors import MistifyError
from tests.support.plug_ins import METRICS, install_example

CONFIG = {"id": "a", "model": "m", "adaptation_goal": {"FLOP": "0.5x"}}


@pytest.mark.parametrize(("name", "is_share"), [("top_two", True), ("pinball_error", False), ("mse", False)])
def test_the_name_of_a_metric_says_whether_higher_is_better(name: str, is_share: bool) -> None:
    metric = Metric(name)
    assert (metric.is_share, metric.value, str(metric)) == (is_share, name, name)
    assert metric.better(0.2, 0.3) is not is_share
    assert metric is Metric(name) is pickle.loads(pickle.dumps(metric)) is copy.deepcopy(metric)  # noqa: S301
    assert metric.plugged_in is (name != "mse")
    assert {member.value for member in Metric}.isdisjoint({"top_two", "pinball_error"})
    adapter = TypeAdapter(OutputScore)
    score = OutputScore("y", metric, 0.5)
    assert adapter.validate_json(adapter.dump_json(score)) == score


@pytest.mark.parametrize("name", ["", "Top", "top two", "top-2", "2nd", "x" * 65])
def test_the_name_of_a_metric_has_to_be_a_word(name: str) -> None:
    with pytest.raises(ValueError, match="not a valid Metric"):
        Metric(name)


def test_a_config_may_name_metrics_that_only_the_server_has(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {"train": "a", "test": "b", "metric": "top_two", "metrics": {"price": "pinball_error"}}
    text = json.dumps({**CONFIG, "dataset": data})
    with pytest.raises(MistifyError, match="2 problems") as caught:
        parse_batch(text)
    assert [problem.place for problem in caught.value.problems] == [
        *("[0].dataset.metric", "[0].dataset.metrics.price"),
    ]
    (known_to_server,) = parse_batch(text, server_knows_more=True)
    monkeypatch.syspath_prepend(install_example(tmp_path / "site", "metrics", METRICS))
    (config,) = parse_batch(text)
    assert config == known_to_server
    assert config.dataset.metrics == {"price": Metric("pinball_error")}


def test_metrics_of_outputs_are_written_and_read_without_a_warning() -> None:
    settings = DataSettings(metrics={"price": Metric.MAE, "kind": Metric("pinball_error")})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = settings.model_dump_json()
    assert DataSettings.model_validate_json(written) == settings


def test_plug_ins_are_searched_only_once_for_all_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes milliseconds, which would add up to minutes for ten thousand goals."""
    looked_for: list[str] = []

    def noted(*, group: str) -> object:
        looked_for.append(group)
        return entry_points(group=group)

    def searches(goals: int) -> int:
        dataset = {"train": "a", "test": "b", "metric": "no_such", "losses": {"out": "neither"}}
        configs = [{**CONFIG, "id": f"goal-{number}", "dataset": dataset} for number in range(goals)]
        looked_for.clear()
        plugins._entry_points.cache_clear()
        with pytest.raises(MistifyError) as caught:
            parse_batch(json.dumps(configs))
        assert len(caught.value.problems) == 2 * goals
        return len(looked_for)

    monkeypatch.setattr(plugins, "entry_points", noted)
    assert searches(40) == searches(2) > 0
