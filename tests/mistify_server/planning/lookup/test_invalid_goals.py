"""Mistakes in a config do not hide problems found by looking up its other names."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mistify.config.reading import collective_batches, read_batch
from mistify_server.planning.lookup.data_roots import DataRoots
from mistify_server.planning.lookup.invalid_goals import repaired_configs
from mistify_server.planning.lookup.models import ModelRepository
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.store.directory import open_store
from mistify_server.tasks.problems import ProblemCollector

RIGHT = {
    "id": "a",
    "model": "digits-resnet",
    "dataset": {"train": "builtin:digits-train", "test": "builtin:digits-test"},
    "adaptation_goal": {"FLOP": "0.5x"},
}


@pytest.fixture
def resolver(tmp_path: Path) -> Iterator[BatchResolver]:
    with open_store(tmp_path / "store") as store:
        repository = ModelRepository(store.models, store.artifacts)
        yield BatchResolver(repository, DataRoots.of([tmp_path], tmp_path / "store"), store.devices)


def found(resolver: BatchResolver, *configs: Any) -> list[str]:
    """Return the places of all problems found by reading and by looking up names."""
    reading, problems = read_batch(json.dumps(configs)), ProblemCollector()
    repaired = dict(repaired_configs(reading.invalid))
    resolver.resolve(collective_batches({**reading.configs, **repaired}), problems)
    return sorted(problem.place for problem in (*reading.problems, *problems.problems))


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"colour": 1, "model": "nope"}, ["[0].colour", "[0].model"]),
        ({"id": "a/b", "hardware": "nope"}, ["[0].hardware", "[0].id"]),
        (
            {"dataset": {"train": "nope.npz", "test": "nope.npz", "colour": 1}},
            ["[0].dataset.colour", "[0].dataset.test", "[0].dataset.train"],
        ),
        ({"dataset": {"test": "nope.npz"}}, ["[0].dataset.test", "[0].dataset.train"]),
        ({"adaptation_goal": {}, "model": "nope"}, ["[0].adaptation_goal", "[0].model"]),
        ({"model": 3, "hardware": "nope"}, ["[0].hardware", "[0].model"]),
        (
            {"algorithm": {"name": "morfnet", "config": {"treshold": 1, "batch_size": "x"}}},
            ["[0].algorithm.config.batch_size", "[0].algorithm.config.treshold", "[0].algorithm.name"],
        ),
        (
            {"algorithm": {"name": "zzz", "config": {"treshold": 1, "batch_size": "x"}}},
            ["[0].algorithm.config.batch_size", "[0].algorithm.name"],
        ),
        ({"algorithm": {"config": {"threshold": 1}}}, ["[0].algorithm.config.threshold"]),
    ],
)
def test_one_mistake_does_not_hide_another(
    resolver: BatchResolver, changes: dict[str, Any], places: list[str]
) -> None:
    assert found(resolver, {**RIGHT, **changes}) == places


def test_the_mistakes_of_one_config_do_not_hide_those_of_others(resolver: BatchResolver) -> None:
    configs = [{**RIGHT, "colour": 1}, 7, {**RIGHT, "id": "b", "model": "nope"}]
    assert found(resolver, *configs) == ["[0].colour", "[1]", "[2].model"]


def test_a_valid_config_has_no_problems(resolver: BatchResolver) -> None:
    assert found(resolver, RIGHT) == []
