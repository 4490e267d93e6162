"""Scores of subnets on a device's data, compared with their blocks in Keras."""

import numpy as np
import pytest

from mistify.costs.quantization import Quantization
from mistify.package.manifest import TensorInfo
from mistify.package.training import OutputEncoding
from mistify_client.subnets.scoring.output_criteria import criterion_for
from mistify_client.subnets.scoring.reuse import GroupEvaluation, Outputs
from mistify_client.subnets.scoring.scores import SubnetScorer
from tests.mistify_client.subnets.spaces import known
from tests.support import elastic_stores


def in_keras(subnet, images):
    models = {block.file: block.model for block in elastic_stores.blocks()}
    for block in subnet:
        images = models[block.file](images, training=False)
    return np.asarray(images)


def scorer(own, images, targets):
    evaluation = GroupEvaluation(own.files, own.store, own.table, {"image": images})
    return SubnetScorer(evaluation, own.store, own.space.original, targets)


def test_accuracy_equals_that_of_the_network_in_keras(elastic, device_data):
    own, (images, classes) = elastic(), device_data
    subnets = list(own.space)[::4]
    scores = scorer(own, images, {"scores": classes})(subnets)
    for subnet, score in zip(subnets, scores, strict=True):
        assert score.accuracy == pytest.approx(np.mean(in_keras(subnet, images).argmax(1) == classes))
    assert max(score.accuracy for score in scores) > 0.95
    assert min(score.accuracy for score in scores) < 0.9


def test_without_labels_the_score_is_the_agreement_with_the_original_network(elastic, device_data):
    own, images = elastic(), device_data[0][:200]
    answers = in_keras(own.space.original, images).argmax(1)
    subnets = list(own.space)[::8]
    original, *others = scorer(own, images, {})(subnets)
    assert original.accuracy == 1
    for subnet, score in zip(subnets[1:], others, strict=True):
        assert score.accuracy == pytest.approx(np.mean(in_keras(subnet, images).argmax(1) == answers))
        assert score.loss > original.loss


def test_int8_blocks_are_nearly_as_accurate(elastic, device_data):
    own, (images, classes) = elastic(Quantization.INT8), device_data
    (score,) = scorer(own, images, {"scores": classes})([own.space.original])
    logits = in_keras(own.space.original, images)
    chosen = np.take_along_axis(logits, classes[:, None], 1)[:, 0]
    loss = np.mean(np.log(np.exp(logits).sum(1)) - chosen)
    assert score.accuracy == pytest.approx(np.mean(logits.argmax(1) == classes), abs=0.02)
    assert score.loss == pytest.approx(loss, rel=0.2)


def test_integer_outputs_are_dequantized():
    own = known(1, shrunk=0, merged=())
    values = np.random.default_rng(0).integers(-8, 8, size=(20, 10)) / 2
    classes = np.arange(20) % 10
    (info,) = own.space.store.outputs
    quantized = TensorInfo(name=info.name, dtype="int8", shape=info.shape, scale=0.5, zero_point=3)
    store = own.space.store.model_copy(update={"outputs": (quantized,)})
    outputs = {info.name: quantized.quantized(values)}
    evaluation = lambda subnets: [Outputs(0, slice(0, 20), outputs)]  # noqa: E731
    (score,) = SubnetScorer(evaluation, store, own.space.original, {info.name: classes})([own.space.original])
    expected = criterion_for(OutputEncoding.LOGITS, classes)
    assert score == expected.score(expected.sums(values.astype(np.float32), slice(0, 20)))


@pytest.mark.parametrize("kind", [OutputEncoding.LOGITS, OutputEncoding.FIGURES])
def test_a_subnet_with_non_finite_outputs_has_the_lowest_score(kind):
    own = known(1, shrunk=0, merged=())
    (info,) = own.space.store.outputs
    store = own.space.store.model_copy(update={"kinds": {info.name: kind}})
    values = np.random.default_rng(0).normal(size=(20, 10)).astype(np.float32)
    values[3] = np.nan
    right = values.argmax(1) if kind is OutputEncoding.LOGITS else np.ones((20, 10), np.float32)
    evaluation = lambda subnets: [Outputs(0, slice(0, 20), {info.name: values})]  # noqa: E731
    (score,) = SubnetScorer(evaluation, store, own.space.original, {info.name: right})([own.space.original])
    assert score.accuracy == 0
    assert 1e6 < score.loss < np.inf
