"""A gigabyte of examples in a process limited to 700 MB of data."""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = 350_000
SHAPE = (32, 32, 3)

READS = """
import resource, sys
import numpy as np
from executors.data import split
from executors.readers.loading import load_dataset
from executors.structure.signature import signature_of
import keras

inputs = keras.Input((32, 32, 3), name="x")
x = keras.layers.GlobalAveragePooling2D()(inputs)
signature = signature_of(keras.Model(inputs, keras.layers.Dense(10, "softmax", name="y")(x)))
taken = int(open("/proc/self/status").read().split("VmData:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (taken + 700 * 2**20,) * 2)
if sys.argv[2] == "whole":
    np.load(sys.argv[1])["x"]
train, held_out = split(load_dataset(sys.argv[1], signature), 0.5)
total = 0
for part in (train, held_out):
    for at in range(0, len(part), 5000):
        total += int(part.inputs["x"][at : at + 5000, 0, 0, 0].sum())
print(len(train), len(held_out), total)
"""


@pytest.mark.slow
def test_data_larger_than_memory_is_read_split_and_iterated(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (EXAMPLES, *SHAPE), dtype=np.uint8)
    np.savez(tmp_path / "train.npz", x=images, y=np.arange(EXAMPLES) % 10)
    expected = int(images[:, 0, 0, 0].sum())
    del images

    def read(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", READS, str(tmp_path / "train.npz"), how]
        environment = {
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
            "PATH": "",
            "PYTHONPATH": ":".join(sys.path),
        }
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    actual = read("streamed")
    assert actual.stdout.split() == [str(EXAMPLES // 2), str(EXAMPLES // 2), str(expected)], actual.stderr
    assert not list((tmp_path / "cache" / "mistify").iterdir())
    assert "MemoryError" in read("whole").stderr
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY
