"""The blocks of every operator family in LiteRT, compared with the supernet."""

import numpy as np
import pytest

from executors.algorithms.adaptivenet.params import VARIANTS, AdaptiveNetParams
from executors.algorithms.adaptivenet.parts import supernet_blocks
from executors.algorithms.adaptivenet.supernet import Supernet, TrainedSupernet
from executors.data import Dataset
from executors.structure import analyse
from mistify.costs.quantization import Quantization
from mistify.plugins import plug_ins
from mistify_client.assembly.stitching import stitched
from mistify_server.worker.packaging.conversion.blocks import block_store
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.executors.algorithms.adaptivenet.conftest import deep_resnet
from tests.executors.structure.networks import randomised

AMOUNTS = {"depth": [3], "kernel": [1], "separable": [1]}


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(6).uniform(size=(40, 8, 8, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def source():
    return analyse(randomised(deep_resnet()))


@pytest.fixture(scope="module")
def supernet(source, images):
    families = {name: AMOUNTS.get(name, [0.5]) for name in plug_ins(VARIANTS)}
    for own in ("merge", "shrink"):
        del families[own]
    params = AdaptiveNetParams(largest=0.1, merge=(), shrink=(), variants=families)
    return Supernet.expanded(source, params, Dataset({"image": images}, {}))


@pytest.mark.slow
@pytest.mark.parametrize("precision", [Quantization.NONE, Quantization.INT8])
def test_variants_of_all_families_are_packaged(supernet, images, precision):
    space = supernet.space
    trained = TrainedSupernet(supernet, [0.0] * len(space.places))
    files = block_store(supernet_blocks(trained), precision, {"image": images})
    close = {Quantization.NONE: 1e-5, Quantization.INT8: 0.05}[precision]
    for number in range(space.blocks, len(space.places)):
        subnet = space.with_one(number)
        names = [f"{space.places[one].name}.tflite" for one in subnet]
        found = Runner(stitched({name: files[name] for name in names}))({"image": images})["digit"]
        expected = supernet.predictions({"image": images}, subnet)["digit"]
        assert np.abs(found - expected).mean() < close, space.places[number].name


@pytest.mark.slow
def test_variants_of_all_families_survive_saving(supernet, source, images):
    losses = [0.0] * len(supernet.space.places)
    loaded = Supernet.loaded(supernet.saved(losses), source, 0.1).supernet
    assert loaded.space == supernet.space
    for number in range(loaded.space.blocks, len(loaded.space.places)):
        subnet = loaded.space.with_one(number)
        np.testing.assert_array_equal(
            loaded.predictions({"image": images}, subnet)["digit"],
            supernet.predictions({"image": images}, subnet)["digit"],
        )


@pytest.mark.slow
def test_every_family_has_variants_of_a_residual_network(supernet):
    names = {place.name[len("block-00-") :] for place in supernet.space.places[supernet.space.blocks :]}
    assert names == {
        "depth-3", "fire-0.5", "ghost-0.5", "kernel-1", "low-rank-0.5", "noise-0.5", "resolution-0.5",
        "separable-1",
    }  # fmt: skip
    assert not supernet.unfit
