"""The setting `compression`."""

import json

import pytest

from mistify.config.package.compression import CompressionConfig
from mistify.config.reading import parse_batch
from mistify.errors import MistifyError


def parsed(**value: object) -> CompressionConfig | None:
    config = {
        "id": "a",
        "model": "m",
        "dataset": {"train": "t", "test": "t"},
        "adaptation_goal": {"memory": "0.5x"},
        **value,
    }
    (actual,) = parse_batch(json.dumps(config))
    return actual.compression


def test_nothing_is_compressed_by_default() -> None:
    assert parsed() is None


@pytest.mark.parametrize("value", [{"sparsity": 0.5}, {"clusters": 16}, {"clusters": 2}, {"clusters": 256}])
def test_compression_is_either_sparsity_or_clustering(value: dict[str, float]) -> None:
    actual = parsed(compression=value)
    assert actual is not None
    assert actual.model_dump(exclude_none=True) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, r'\[0\].compression: got {}; expected either "sparsity" or "clusters"'),
        ({"sparsity": 0.5, "clusters": 16}, 'expected either "sparsity" or "clusters"'),
        ({"sparsity": 0}, r"\[0\].compression.sparsity: got 0; expected a share above 0 and below 1"),
        ({"sparsity": 1}, "got 1; expected a share above 0 and below 1"),
        ({"sparsity": "half"}, 'got "half"; expected a share'),
        ({"clusters": 1}, r"\[0\].compression.clusters: got 1; expected a number of values, 2 to 256"),
        ({"clusters": 257}, "got 257; expected a number of values"),
        ({"clusters": 2.5}, "got 2.5; expected a number of values"),
        ({"cluster": 16}, 'the key "cluster"; expected one of clusters, sparsity; did you mean "clusters"'),
        (0.5, r"\[0\].compression: got 0.5; expected an object; its keys can be sparsity, clusters"),
    ],
)
def test_unusable_settings_are_reported_at_their_places(value: object, message: str) -> None:
    with pytest.raises(MistifyError, match=message):
        parsed(compression=value)


def test_training_on_the_device_that_would_undo_compression_is_refused() -> None:
    with pytest.raises(MistifyError, match="without training, which would undo the compression"):
        parsed(compression={"sparsity": 0.5}, quantization="int8-qat")
    assert parsed(compression={"sparsity": 0.5}, quantization="int8") is not None
    with pytest.raises(MistifyError, match='got "50% zeros"; expected no compression of branches'):
        parsed(compression={"sparsity": 0.5}, branches={"count": 3})


def test_compression_is_described_in_words() -> None:
    assert [str(CompressionConfig(sparsity=0.5)), str(CompressionConfig(clusters=16))] == [
        "50% zeros",
        "16 clusters",
    ]
