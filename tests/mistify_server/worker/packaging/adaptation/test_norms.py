"""Folded batch norms against Keras: their places, their statistics, and networks with other ones."""

import numpy as np
import pytest

from mistify.adaptation.observing import observed_networks
from mistify.adaptation.statistics import Statistics
from mistify.config.package.quantization import QuantizationConfig
from mistify.package.manifest import branch_signature
from mistify.tflite.memory import memory_bytes
from mistify.tflite.observing import Observer
from mistify.tflite.rescaling import rescaled
from mistify_server.worker.packaging.adaptation.norms import located_norms
from mistify_server.worker.packaging.conversion.branches import convert_branches
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import Runner
from tests.mistify_server.worker.packaging.adaptation.folded_networks import (
    MAKERS,
    after,
    converted,
    moments,
    pixels,
    records,
    residual,
    with_statistics,
)
from tests.mistify_server.worker.packaging.networks import four_branches, images

#: Precision -> the largest difference of statistics in standard deviations, and of outputs as a share.
TOLERANCES = {"none": (1e-4, 2e-6), "float16": (5e-3, 2e-3), "dynamic": (0.05, 0.02)}


def moved(norms, seed=0):
    """Return statistics that differ from the shipped ones in every channel."""
    rng = np.random.default_rng(seed)
    shipped = norms.shipped
    mean = shipped.mean + rng.normal(0, 0.3, shipped.mean.shape)
    return Statistics(mean, shipped.variance * rng.uniform(0.4, 2.5, shipped.variance.shape))


def observed(network, records_of, norms, statistics, examples):
    """Return the outputs and statistics that the observed network shows, with other statistics in use."""
    ((places, content),) = observed_networks(network, records_of, 0)
    assert places == list(range(len(records_of)))
    observer, changes = Observer(content, len(places)), norms.changes(statistics)
    seen = [observer({"image": example[None]}, *changes) for example in examples]
    means = [np.mean([one.means[at] for one in seen], axis=0) for at in places]
    squares = [np.mean([one.squares[at] for one in seen], axis=0) for at in places]
    return np.concatenate([one.outputs["class"] for one in seen]), norms.observed(means, squares)


@pytest.mark.sampled
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("precision", TOLERANCES)
def test_statistics_are_those_that_keras_reads_in_front_of_the_norm(precision, maker):
    model, network, located = converted(after, maker, precision=precision)
    examples, (found, norms) = pixels(6), records(located)
    assert [one.name for one in found] == ["linear"]
    _, statistics = observed(network, found, norms, norms.shipped, examples)
    (mean,), (variance,) = moments(model, examples)
    tolerance, _ = TOLERANCES[precision]
    assert np.abs(statistics.mean - mean).max() <= tolerance * np.sqrt(variance).max()
    assert np.abs(np.log((statistics.variance + 0.01) / (variance + 0.01))).max() <= 2 * tolerance


@pytest.mark.sampled
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("precision", TOLERANCES)
def test_other_statistics_are_written_as_if_the_network_was_converted_with_them(precision, maker):
    model, network, located = converted(after, maker, precision=precision)
    found, norms = records(located)
    statistics = moved(norms)
    factors, summands = norms.changes(statistics)
    written = rescaled(network, [one.operators for one in found], factors, summands)
    expected = np.asarray(with_statistics(model, statistics, norms.sizes)(pixels(5), training=False))
    shipped = Runner(network)({"image": pixels(5)})["class"]
    _, tolerance = TOLERANCES[precision]
    actual = Runner(written)({"image": pixels(5)})["class"]
    most = tolerance * np.abs(expected).max()
    assert np.abs(actual - expected).max() <= most < np.abs(shipped - expected).max()
    alone = Runner(written, "serving_default_batch_1")({"image": pixels(5)[:1]})["class"]
    assert np.abs(actual[:1] - alone).max() <= 1e-6


def test_the_observed_network_computes_the_same_as_the_written_one():
    _, network, located = converted(residual)
    found, norms = records(located)
    statistics = moved(norms)
    outputs, _ = observed(network, found, norms, statistics, pixels(4))
    written = rescaled(network, [one.operators for one in found], *norms.changes(statistics))
    assert np.abs(outputs - Runner(written)({"image": pixels(4)})["class"]).max() < 1e-5


def test_deeper_norms_are_observed_behind_other_statistics():
    model, network, located = converted(residual)
    found, norms = records(located)
    statistics, examples = moved(norms), pixels(5)
    _, seen = observed(network, found, norms, statistics, examples)
    mean, variance = (
        np.concatenate(each) for each in moments(with_statistics(model, statistics, norms.sizes), examples)
    )
    assert np.abs(seen.mean - mean).max() < 1e-3
    assert np.abs(np.log(seen.variance / variance)).max() < 1e-3


def test_the_observed_network_takes_hardly_more_memory():
    _, network, located = converted(residual)
    found, _ = records(located)
    ((_, content),) = observed_networks(network, found, 0)
    assert memory_bytes(content) <= 1.3 * memory_bytes(network)


def test_the_shipped_statistics_change_nothing():
    _, network, located = converted(residual)
    found, norms = records(located)
    unchanged = rescaled(network, [one.operators for one in found], *norms.changes(norms.shipped))
    assert len(unchanged) <= 1.05 * len(network)
    assert np.array_equal(
        Runner(unchanged)({"image": pixels(3)})["class"], Runner(network)({"image": pixels(3)})["class"]
    )


def test_a_layer_without_batch_norm_is_not_found():
    _, _, located = converted(after, "conv")
    assert "stem" not in [one.name for one in located]


@pytest.mark.sampled
@pytest.mark.parametrize("precision", TOLERANCES)
def test_branches_share_the_norms_of_their_base(precision):
    branches = four_branches()
    network = convert_branches(branches, QuantizationConfig.model_validate({"precision": precision}))
    models = [branch.model for branch in branches.networks]
    located = located_norms(models, network)
    assert [one.name for one in located].count("stem") == 1
    assert [one.name for one in located].count("inner") == 4
    found, norms = records(located)
    factors, summands = norms.changes(moved(norms))
    written = rescaled(network, [one.operators for one in found], factors, summands)
    for number, model in enumerate(models):
        other = _with(model, located, moved(norms), norms.sizes)
        outputs = Runner(written, branch_signature(number))({"image": images(4)})["scores"]
        expected = np.asarray(other(images(4), training=False))
        assert np.abs(outputs - expected).max() <= TOLERANCES[precision][1]


def _with(model, located, statistics, sizes):
    """Return a branch with the statistics of its own norms, told from those of others by their means."""
    ends = np.cumsum(sizes)[:-1]
    means, variances = np.split(statistics.mean, ends), np.split(statistics.variance, ends)
    own = {
        norm.name: next(at for at, one in enumerate(located) if _same(one.arrays["mean"], norm))
        for norm in model.layers
        if "norm" in norm.name
    }
    for name, at in own.items():
        model.get_layer(name).moving_mean.assign(means[at])
        model.get_layer(name).moving_variance.assign(variances[at])
    return model


def _same(mean, norm):
    actual = np.asarray(norm.moving_mean)
    return mean.shape == actual.shape and np.array_equal(mean, actual)


def test_integers_have_no_norms_to_adapt():
    """Their activations are integers, whose ranges are fixed."""
    model = residual()
    precision = QuantizationConfig.model_validate({"precision": "int8"})
    network = convert(model, precision, {"image": pixels(8)})
    assert located_norms([model], network) == []
