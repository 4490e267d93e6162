"""Entries of a config, and the problems found in them."""

import json

import pytest

from mistify.config.reading import parse_batch
from mistify.errors import ErrorCode, MistifyError

SOURCE = {"flops": 12.5e6, "params": 80e3, "memory_bytes": 4e5, "size_bytes": 3e5, "latency_ms@host": 2.0}


def entry(**values):
    return {
        "id": "a",
        "model": "resnet",
        "dataset": {"train": "train.npz", "test": "test.npz"},
        "adaptation_goal": {"FLOP": "0.5x"},
    } | values


def parse(*entries):
    return parse_batch(json.dumps(entries))


def problems(*entries):
    with pytest.raises(MistifyError) as caught:
        parse(*entries)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.problems


def places(*entries):
    return [problem.place for problem in problems(*entries)]
