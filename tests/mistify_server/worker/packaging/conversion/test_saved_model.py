"""Branches as a SavedModel, whose outputs in TensorFlow equal those of `serve.tflite` in LiteRT."""

import io
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from executors.structure import fold_batch_norm
from mistify.config.package.branches import BranchesConfig
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.mistify_server.worker.packaging.networks import (
    four_branches,
    images,
    package_task,
    packaged,
    training_setup,
)


@pytest.fixture(scope="module")
def branches():
    return four_branches()


@pytest.fixture(scope="module")
def package(branches):
    own = branches.networks[branches.default].model
    return packaged(
        own, package_task(branches=BranchesConfig(saved_model=True)), training_setup(own), branches=branches
    )


@pytest.fixture(scope="module")
def saved(package, tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved")
    zipfile.ZipFile(io.BytesIO(package.files["saved_model.zip"])).extractall(directory)
    return tf.saved_model.load(directory)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("number", [-3, 0, 1, 2, 3, 9])
def test_each_branch_gives_the_same_outputs_as_in_litert(package, saved, number, batch):
    actual = saved.signatures["serving_default"](
        image=tf.constant(images(batch)), branch=tf.constant(number, tf.int32)
    )
    expected = Runner(package.files["serve.tflite"])({"image": images(batch), "branch": number})
    np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-5)


def test_the_branch_is_selected_by_a_case_operation(saved):
    """`tf.switch_case` becomes a stateless or stateful `Case` with functions as branches."""
    definition = saved.signatures["serving_default"].graph.as_graph_def()
    nodes = [
        *definition.node,
        *(node for function in definition.library.function for node in function.node_def),
    ]
    cases = [node for node in nodes if node.op in ("Case", "StatelessCase")]
    assert [len(node.attr["branches"].list.func) for node in cases] == [4]


def test_the_base_is_stored_once(saved, branches):
    stored = sum(variable.shape.num_elements() for variable in saved.signatures["serving_default"].variables)
    folded = [fold_batch_norm(network.model) for network in branches.networks]
    stem = folded[0].get_layer("stem").count_params()
    assert stored == sum(model.count_params() for model in folded) - 3 * stem


@pytest.mark.slow
def test_no_saved_model_is_made_by_default(branches):
    own = branches.networks[branches.default].model
    made = packaged(own, package_task(), training_setup(own), branches=branches)
    assert set(made.files) == {"serve.tflite", "manifest.json"}
