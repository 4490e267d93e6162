"""Subnets that run together, compared with separate runs."""

import numpy as np
import pytest

from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify_client.runtime.inputs import bind
from mistify_client.subnets.scoring.reuse import GroupEvaluation
from tests.mistify_client.chains import load_chain

LIMITS = [{}, {"feature_bytes": 0}, {"block_bytes": 0}, {"feature_bytes": 40_000, "block_bytes": 80_000}]


def by_subnet(evaluation, subnets):
    """Return the outputs of each subnet on all data."""
    parts = {}
    for number, rows, outputs in evaluation(subnets):
        parts.setdefault(number, {})[rows.start] = outputs["scores"]
    return [
        np.concatenate([parts[number][start] for start in sorted(parts[number])]) for number in sorted(parts)
    ]


def alone(own, subnets, images):
    inputs = bind(own.store.inputs, (), {"image": images})
    files = [[one.file for one in subnet] for subnet in subnets]
    return [load_chain(own.directory, names, 1)(inputs)["scores"] for names in files]


@pytest.mark.slow
@pytest.mark.parametrize("precision", [Quantization.NONE, Quantization.INT8])
def test_shared_runs_give_the_outputs_of_separate_runs(elastic, device_data, precision):
    own, images = elastic(precision), device_data[0][:25]
    subnets = list(own.space)
    evaluation = GroupEvaluation(own.files, own.store, own.table, {"image": images}, batch=10)
    for actual, expected in zip(by_subnet(evaluation, subnets), alone(own, subnets, images), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("limits", LIMITS)
def test_memory_limits_do_not_change_the_outputs(elastic, device_data, limits):
    own, images = elastic(), device_data[0][:7]
    subnets = list(own.space)[::3]
    evaluation = GroupEvaluation(own.files, own.store, own.table, {"image": images}, batch=4, **limits)
    for actual, expected in zip(by_subnet(evaluation, subnets), alone(own, subnets, images), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_shared_blocks_run_once(elastic, device_data):
    """Two batches of three subnets with six, six and five blocks: all share two, and the first two three."""
    own = elastic()
    names = [
        ["stem", "block-1", "block-2", "block-3", "block-4", "head"],
        ["stem", "block-1", "block-2", "block-3-shrunk", "block-4", "head"],
        ["stem", "block-1", "block-2-merge2", "block-4", "head"],
    ]
    subnets = [own.store.network_of([f"{name}.tflite" for name in subnet]) for subnet in names]
    evaluation = GroupEvaluation(own.files, own.store, own.table, {"image": device_data[0][:20]}, batch=10)
    assert len(list(evaluation(subnets))) == 2 * 3
    assert evaluation.saved == 2 * (2 + 2 + 1)
    assert evaluation.runs == 2 * (6 + 6 + 5) - evaluation.saved


def test_batches_run_one_after_another(elastic, device_data):
    own = elastic()
    evaluation = GroupEvaluation(own.files, own.store, own.table, {"image": device_data[0][:9]}, batch=4)
    seen = [(outputs.rows.start, outputs.subnet) for outputs in evaluation(list(own.space)[:3])]
    assert sorted(seen) == [(start, number) for start in (0, 4, 8) for number in range(3)]
    assert [start for start, _ in seen] == [0, 0, 0, 4, 4, 4, 8, 8, 8]


def test_blocks_are_reloaded_if_memory_is_short(elastic, device_data):
    """Each block is loaded once if all fit into memory, and repeatedly if only one subnet fits."""
    own = elastic()
    data = {"image": device_data[0][:20]}
    bounded = GroupEvaluation(own.files, own.store, own.table, data, block_bytes=0)
    list(bounded(list(own.space)))
    free = GroupEvaluation(own.files, own.store, own.table, data)
    list(free(list(own.space)))
    assert free.loads == len(own.space.variants) < bounded.loads < bounded.runs == free.runs


def test_a_damaged_block_is_refused_by_name(elastic, device_data):
    own = elastic()
    path = own.directory / "block-2.tflite"
    path.write_bytes(path.read_bytes()[:-1])
    evaluation = GroupEvaluation(own.files, own.store, own.table, {"image": device_data[0][:5]})
    with pytest.raises(MistifyError) as caught:
        list(evaluation([own.space.original]))
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert caught.value.problems[0].place == str(path)
