"""Factories of packages: slices of the converted supernet against those of the one in Keras."""

from dataclasses import replace
from functools import cache

import keras
import numpy as np
import pytest

from executors.algorithms.nnfactory.parts import factory_parts
from executors.contract.package_parts import PackageParts
from executors.data import Dataset
from executors.structure import analyse
from executors.training.params import TrainingParams
from executors.training.setup import TrainingSetup
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.package.factory import ASSEMBLER, FACTORY, SUPERNET, FactoryStore, SlicedGroup
from mistify.package.training import OutputEncoding
from mistify.package.verification import verify
from mistify.scenarios.gates import open_units
from mistify.tflite.session import Session
from mistify.tflite.slicing import OpenUnits, sliced
from mistify_client import load
from mistify_client.slicing.customizing import SliceRequest, customize
from mistify_server.worker.packaging.conversion.factory import convert_assembler, factory_files
from mistify_server.worker.packaging.models import package_model
from tests.data.make_factory import supernet
from tests.mistify_server.worker.packaging.networks import package_task, slices_of
from tests.support.factories import QUALITY, SPACE, UNSEEN, images

KINDS = {"answer": OutputEncoding.LOGIT}

REQUESTS = [(task, limit) for task in ("exactly:2, odd", "has, 4", UNSEEN) for limit in (0.1, 0.4, 1.0)]


@cache
def files(precision=Quantization.NONE):
    factory = factory_parts(supernet()).factory
    quantization = QuantizationConfig(precision=precision)
    whole = slices_of(factory.whole, {"image": images(48)}).network(quantization)
    return factory_files(factory, whole, convert_assembler(factory.assembler), KINDS)


def store_of(converted):
    return FactoryStore.model_validate_json(converted[FACTORY])


def cut(converted, task, limit):
    """A slice as a device cuts it, step by step."""
    store = store_of(converted)
    requests = {"task": store.space.encode(store.space.parse(task))[None], "limit": np.array([[limit]], "f4")}
    logits, scales, shifts = (
        Session(converted[ASSEMBLER], 1)(requests)[name][0] for name in ("logits", "scales", "shifts")
    )
    sizes = [group.units for group in store.groups]
    kept = open_units(logits, limit, sizes, [group.least for group in store.groups])
    ends = np.cumsum(sizes)[:-1]
    units = [
        OpenUnits(np.flatnonzero(own), scale[own], shift[own])
        for own, scale, shift in zip(kept, np.split(scales, ends), np.split(shifts, ends), strict=True)
    ]
    return sliced(converted[SUPERNET], store.places, units)


def errors(converted):
    """The largest difference of each request from the network with gates, relative to the largest output."""
    found = []
    for task, limit in REQUESTS:
        (assembly,) = supernet().assemblies(SPACE.encode(SPACE.parse(task)), [limit])
        reference = supernet().outputs({"image": images(16)}, assembly)
        answered = Session(cut(converted, task, limit), 1)({"image": images(16)})["answer"]
        found.append(np.abs(answered - reference).max() / np.abs(reference).max())
    return found


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [
        (Quantization.NONE, 1e-5),
        (Quantization.FLOAT16, 3e-3),
        (Quantization.DYNAMIC, 6e-2),
        (Quantization.INT8, 0.15),
    ],
)
def test_slices_for_tasks_and_limits_answer_as_the_supernet_with_gates(precision, tolerance):
    assert max(errors(files(precision))) <= tolerance


def test_the_description_has_all_that_a_device_needs():
    converted = files()
    store = store_of(converted)
    assert [(group.name, group.units, group.least) for group in store.groups] == [
        ("inner", 24, 1),
        ("hidden", 16, 1),
    ]
    assert store.space == SPACE
    assert store.quality == QUALITY
    assert store.kinds == KINDS
    assert store.supernet.size == len(converted[SUPERNET])
    assert store.assembler.size == len(converted[ASSEMBLER])


def test_a_supernet_is_a_part_of_packages_alone_that_are_to_have_it_inside():
    parts = factory_parts(supernet())
    assert parts.factory.whole.structure.widths["inner"] == 24
    assert "3 tasks" in parts.note
    assert PackageParts().factory is None
    slices = list(parts.factory.whole.examples(4))
    assert len({model.count_params() for model in slices}) > 1


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package whose network is a slice, with the factory that it was cut out of."""
    (assembly,) = supernet().assemblies(SPACE.encode(SPACE.parse("has, 4")), [0.4])
    model = supernet().slice(assembly)
    answers = (model.predict(images(40), verbose=0) > 0).astype(np.int64)
    data = Dataset({"image": images(40)}, {"answer": answers})
    setup = TrainingSetup(data, data, None, TrainingParams())
    parts = factory_parts(supernet())
    slices = slices_of(parts.factory.whole)
    packaged = package_model(model, package_task(), setup, data, parts=parts, slices=slices)
    directory = tmp_path_factory.mktemp("packages") / "package"
    directory.mkdir()
    for name, content in packaged.files.items():
        (directory / name).write_bytes(content)
    return directory


@pytest.mark.slow
def test_a_device_customizes_a_package_as_it_comes_from_the_worker(package):
    assert {SUPERNET, ASSEMBLER, FACTORY} <= set(verify(package).files)
    result = customize(package, SliceRequest(UNSEEN, limit=0.1), seconds=1e-3)
    (assembly,) = supernet().assemblies(SPACE.encode(SPACE.parse(UNSEEN)), [result.made.candidate.limit])
    reference = supernet().outputs({"image": images(16)}, assembly)
    answered = load(package, task=UNSEEN)(images(16))
    assert np.ptp(reference) > 0
    assert np.abs(answered - reference).max() <= 1e-5 * np.abs(reference).max()


@pytest.mark.slow
def test_a_network_whose_units_cannot_be_cut_is_refused():
    """One group is of a single unit, of which nothing can be cut."""
    factory = factory_parts(supernet()).factory
    x = keras.Input((8, 8, 1), name="image")
    y = keras.layers.Dense(1, "relu", name="one")(keras.layers.Flatten()(x))
    single = analyse(keras.Model(x, keras.layers.Dense(1, name="answer")(y)))
    merged = replace(factory.whole, structure=single, groups=(SlicedGroup(name="one", units=1),))
    answers = np.ones((8, 1), np.int64)
    data = Dataset({"image": images(8)}, {"answer": answers})
    setup = TrainingSetup(data, data, None, TrainingParams())
    with pytest.raises(MistifyError, match='leave "inside" out') as error:
        package_model(
            *(supernet().network, package_task(), setup, data),
            parts=PackageParts(factory=replace(factory, whole=merged)),
            slices=slices_of(merged),
        )
    assert error.value.code is ErrorCode.INVALID_MODEL
