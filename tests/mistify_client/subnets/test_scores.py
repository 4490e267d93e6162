"""Scores of subnets on a device's data, against those of their blocks in Keras."""

import numpy as np
import pytest

from mistify.costs.quantization import Quantization
from mistify_client.subnets.reuse import GroupEvaluation
from mistify_client.subnets.scores import SubnetScorer
from tests import elastic_stores


def in_keras(subnet, images):
    models = {block.file: block.model for block in elastic_stores.blocks()}
    for block in subnet:
        images = models[block.file](images, training=False)
    return np.asarray(images)


def scorer(own, images, targets):
    evaluation = GroupEvaluation(own.directory, own.store, own.table, {"image": images})
    return SubnetScorer(evaluation, own.store, own.space.original, targets)


def test_accuracy_is_that_of_the_network_in_keras(elastic, device_data):
    own, (images, classes) = elastic(), device_data
    subnets = list(own.space)[::4]
    scores = scorer(own, images, {"scores": classes})(subnets)
    for subnet, score in zip(subnets, scores, strict=True):
        assert score.accuracy == pytest.approx(np.mean(in_keras(subnet, images).argmax(1) == classes))
    assert max(score.accuracy for score in scores) > 0.95
    assert min(score.accuracy for score in scores) < 0.9


def test_without_labels_it_is_the_agreement_with_the_original(elastic, device_data):
    own, images = elastic(), device_data[0][:200]
    answers = in_keras(own.space.original, images).argmax(1)
    subnets = list(own.space)[::8]
    original, *others = scorer(own, images, {})(subnets)
    assert original.accuracy == 1
    for subnet, score in zip(subnets[1:], others, strict=True):
        assert score.accuracy == pytest.approx(np.mean(in_keras(subnet, images).argmax(1) == answers))
        assert score.loss > original.loss


def test_integers_count_as_the_values_that_they_stand_for(elastic, device_data):
    own, (images, classes) = elastic(Quantization.INT8), device_data
    (score,) = scorer(own, images, {"scores": classes})([own.space.original])
    in_floats = np.mean(in_keras(own.space.original, images).argmax(1) == classes)
    assert score.accuracy == pytest.approx(in_floats, abs=0.02)
    assert score.loss < 1
