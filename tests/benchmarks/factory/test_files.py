"""The files of the questions about four digits, and the config that names them."""

from pathlib import Path

import keras
import numpy as np
import pytest

from benchmarks.factory.digits import NAMED, Extent, four_digits
from benchmarks.factory.files import write
from executors.readers.loading import load_dataset
from executors.structure.signature import signature_of
from mistify.config.reading import parse_batch
from mistify.scenarios.space import TaskSpace
from tests.support.paths import REPOSITORY

EXTENT = Extent(train=300, validated=120, tested=4, extra=20)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files") / "four-digits"
    write(directory, EXTENT)
    return directory


@pytest.fixture(scope="module")
def data():
    return four_digits(extent=EXTENT)


def test_the_files_have_the_data_of_the_benchmark(directory, data):
    space = TaskSpace.read(directory / "tasks.json")
    signature = signature_of(keras.models.load_model(directory / "quad-resnet.keras"))
    for part in ("train", "validation", "test"):
        read, made = load_dataset(str(directory / f"{part}.npz"), signature, space=space), getattr(data, part)
        assert read.space == made.space
        np.testing.assert_array_equal(read.inputs["image"], made.inputs["image"])
        np.testing.assert_array_equal(read.answers, made.answers)


def test_the_config_names_these_files_and_a_question_that_is_never_trained(directory, data):
    config = REPOSITORY / "configs" / "nnfactory_digits.json"
    goals = parse_batch(config.read_text(), config.name)
    files = {str(Path(goal.model)) for goal in goals}
    for goal in goals:
        named = goal.dataset
        files |= {str(name) for name in (named.train, named.validation, named.test, named.tasks)}
    assert files == {f"four-digits/{path.name}" for path in directory.iterdir()}
    space = TaskSpace.read(directory / "tasks.json")
    columns = {space.listed[space.parse(goal.task.properties)] for goal in goals}
    assert columns < set(range(NAMED))
    assert len(columns & {*data.unseen}) == 1
