"""The commands' benchmark ports the shipped configs, with the files that they name."""

import json

from benchmarks.harness.checkouts import HERE
from benchmarks.porting.commands import _CONFIGS, _files


def test_only_files_are_needed_as_data() -> None:
    named = {
        name: {file for goal in json.loads((HERE / "configs" / config).read_text()) for file in _files(goal)}
        for name, config in _CONFIGS.items()
    }
    assert named == {
        "digits": set(),
        "resnet8": {"mlperf_tiny/resnet8_cifar10.h5", "cifar10/train.npz", "cifar10/test.npz"},
    }
