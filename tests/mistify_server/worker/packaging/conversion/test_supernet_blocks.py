"""The block store of a supernet, compared with the outputs of its subnets."""

import numpy as np
import pytest
from pydantic import ValidationError

from executors.algorithms.adaptivenet.params import AdaptiveNetParams
from executors.algorithms.adaptivenet.parts import supernet_blocks
from executors.algorithms.adaptivenet.supernet import Supernet, TrainedSupernet
from executors.data import Dataset
from executors.structure import analyse
from mistify.costs.quantization import Quantization
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.training import OutputEncoding
from mistify_client.assembly.stitching import stitched
from mistify_server.worker.packaging.conversion.blocks import block_store
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.executors.algorithms.adaptivenet.conftest import deep_resnet
from tests.executors.structure.networks import randomised

PARAMS = AdaptiveNetParams(largest=0.1, merge=(2,), shrink=(0.5,))


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(6).uniform(size=(40, 8, 8, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def supernet(images):
    model = randomised(deep_resnet())
    return Supernet.expanded(analyse(model), PARAMS, Dataset({"image": images}, {}))


def trained(supernet):
    """Return a supernet in which the loss of each variant is its number."""
    return TrainedSupernet(supernet, [float(number) for number in range(len(supernet.space.places))])


@pytest.fixture(scope="module")
def files(supernet):
    kinds = {"digit": OutputEncoding.SOFTMAX}
    return block_store(supernet_blocks(trained(supernet)), Quantization.NONE, kinds=kinds)


def test_any_subnet_can_be_assembled_from_its_files(supernet, files, images):
    store = BlockStore.model_validate_json(files[BLOCKS])
    rng = np.random.default_rng(1)
    for subnet in (supernet.space.original, *(supernet.space.random(rng) for _ in range(6))):
        names = [f"{supernet.space.places[number].name}.tflite" for number in subnet]
        chosen = store.network_of(names)
        network = Runner(stitched({variant.file: files[variant.file] for variant in chosen}))
        outputs = supernet.predictions({"image": images}, subnet)
        assert network({"image": images}).keys() == outputs.keys()
        for name, expected in outputs.items():
            np.testing.assert_allclose(network({"image": images})[name], expected, atol=1e-5)


def test_the_store_lists_the_blocks_that_variants_replace(supernet, files):
    store = BlockStore.model_validate_json(files[BLOCKS])
    places = {f"{place.name}.tflite": (place.start, place.span) for place in supernet.space.places}
    assert {variant.file: (variant.start, variant.span) for variant in store.variants} == places
    assert [variant.span for variant in store.variants[: supernet.space.blocks]] == [
        1
    ] * supernet.space.blocks
    assert files.keys() == {BLOCKS, *places}
    assert store.kinds == {"digit": OutputEncoding.SOFTMAX}
    assert [variant.estimate.loss for variant in store.variants] == list(range(len(places)))
    original = sum(variant.estimate.flops for variant in store.variants[: supernet.space.blocks])
    assert original == analyse(randomised(deep_resnet())).network().flops


@pytest.mark.slow
def test_the_store_lists_the_blocks_served_by_the_package(supernet):
    blocks = supernet_blocks(trained(supernet))
    own = [block.file for block in blocks[: supernet.space.blocks]]
    store = BlockStore.model_validate_json(block_store(blocks, Quantization.NONE, served=own)[BLOCKS])
    assert store.served == tuple(own)
    for wrong, expected in (
        (own[:-1], "blocks end at position"),
        ([*own[:-1], "no.tflite"], "no block no.tflite"),
    ):
        content = store.model_dump(mode="json") | {"served": wrong}
        with pytest.raises(ValidationError, match=expected):
            BlockStore.model_validate(content)


@pytest.mark.slow
def test_variants_do_not_affect_the_quantization_of_the_original_network(supernet, images):
    """The untrained merged blocks compute something different."""
    blocks, inputs = supernet_blocks(trained(supernet)), {"image": images}
    own = blocks[: supernet.space.blocks]
    names = [block.file for block in own]
    outputs = []
    for stored in (blocks, own):
        files = block_store(stored, Quantization.INT8, inputs)
        outputs.append(Runner(stitched({name: files[name] for name in names}))(inputs)["digit"])
    np.testing.assert_array_equal(*outputs)
