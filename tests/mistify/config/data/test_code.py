"""Metrics and losses given as FILE.py:NAME are parsed into a name and a code file."""

from typing import Any

import pytest
from pydantic import ValidationError

from mistify.config.data.code import CodeFile
from mistify.config.data.dataset import DataSettings
from mistify.config.data.metric import Metric
from mistify.config.reading import read_batch


def test_a_metric_or_loss_in_a_file_is_parsed_into_its_name_and_file() -> None:
    settings = DataSettings.model_validate(
        {
            "metric": "a/scores.py:near",
            "metrics": {"price": "a/scores.py:far_error", "kind": "f1"},
            "losses": {"price": f"upload:{'0' * 64}/losses.py:cautious", "kind": "focal"},
        }
    )
    assert settings.metric == Metric("near")
    assert settings.metrics == {"price": Metric("far_error"), "kind": Metric.F1}
    assert settings.losses == {"price": "cautious", "kind": "focal"}
    assert settings.code == {
        "near": CodeFile(path="a/scores.py"),
        "far_error": CodeFile(path="a/scores.py"),
        "cautious": CodeFile(path=f"upload:{'0' * 64}/losses.py"),
    }
    assert DataSettings.model_validate(settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"metric": "scores.py:accuracy"}, "a name other than accuracy"),
        ({"losses": {"a": "one.py:own", "b": "two.py:own"}}, "a single file for own"),
        ({"losses": {"a": "losses.py:Own"}}, "FILE.py:name with the name in lower case"),
        ({"losses": {"a": "losses.txt:own"}}, "FILE.py:name with the name in lower case"),
    ],
)
def test_invalid_or_ambiguous_names_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        DataSettings.model_validate(settings)


def test_names_in_files_need_no_plug_in() -> None:
    reading = read_batch(
        """{
        "id": "half", "model": "a.keras", "adaptation_goal": {"FLOP": "0.5x"},
        "dataset": {"train": "a", "test": "b", "losses": {"y": "l.py:own"}, "metrics": {"y": "s.py:mine"}}
        }"""
    )
    assert reading.problems == ()
