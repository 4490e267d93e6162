import errno
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

import h5py
import keras
import numpy as np
import pytest

from executors.inspection import Limits, SourceKind, inspect_source
from executors.inspection.names import APPLICATIONS
from mistify.errors import ErrorCode, MistifyError
from tests.executors.inspection.corpus import CORPUS, config_of, hdf5, layer, rewritten, write_corpus
from tests.executors.inspection.networks import save_good_model, small_network
from tests.executors.inspection.presets import PRESET, preset

#: Peak memory of a process in MiB. (`ru_maxrss` starts with the parent's.)
PEAK = """
from pathlib import Path
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))
"""

#: Inspects the given files, and prints how much more memory that took than inspecting the first one.
CHILD = f"""{PEAK}
import sys
from executors.inspection import inspect_source
from mistify.errors import MistifyError
inspect_source(Path(sys.argv[1]))
before = peak()
for name in sys.argv[2:]:
    try:
        inspect_source(Path(name))
    except MistifyError:
        continue
    sys.exit(name + " was accepted")
assert not set(sys.modules) & set(("tensorflow", "keras"))
print(peak() - before)
"""

#: Maximum additional memory in MiB for inspecting all malformed models, compared with a valid one.
MOST_MEMORY = 150


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_good_model(tmp_path_factory.mktemp("good"))


@pytest.fixture(scope="module")
def corpus(good: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, str]]:
    return write_corpus(good, tmp_path_factory.mktemp("corpus"))


def refused(path: Path, text: str, **limits: int) -> None:
    with pytest.raises(MistifyError) as caught:
        inspect_source(path, limits=Limits(**limits))
    assert caught.value.code is ErrorCode.INVALID_MODEL
    (problem,) = caught.value.problems
    assert problem.place == str(path)
    assert text in problem.value


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("weights.pt", '"FILE.py:FUNCTION?weights=weights.pt" (docs/pytorch.md)'),
        ("weights.pth", '"FILE.py:FUNCTION?weights=weights.pth" (docs/pytorch.md)'),
        ("net.py", '"net.py:FUNCTION"'),
        ("net.txt", "model.save(FILE)"),
    ],
)
def test_files_of_pytorch_are_refused_with_the_way_to_name_them(tmp_path: Path, name: str, fix: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(MistifyError) as caught:
        inspect_source(tmp_path / name)
    assert fix in caught.value.problems[0].fix


@pytest.mark.parametrize("name", CORPUS)
def test_a_malformed_model_is_refused(corpus: dict[str, tuple[Path, str]], name: str) -> None:
    refused(*corpus[name])


def test_inspecting_malformed_models_needs_little_memory_and_no_tensorflow(
    good: Path, corpus: dict[str, tuple[Path, str]]
) -> None:
    paths = [str(path) for path, _ in corpus.values()]
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(good), *paths], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    assert int(child.stdout) < MOST_MEMORY


def test_valid_models_are_accepted(good: Path, tmp_path: Path) -> None:
    model = small_network()
    model.compile("adam", "sparse_categorical_crossentropy")
    model.save(tmp_path / "model.h5")
    weights = model.count_params()
    inspected = inspect_source(good)
    assert (inspected.kind, inspected.weights, inspected.size) == (
        SourceKind.KERAS,
        weights,
        good.stat().st_size,
    )
    assert inspect_source(tmp_path / "model.h5").weights >= weights
    assert inspect_source(tmp_path / "model.h5").kind is SourceKind.HDF5


def test_presets_in_one_or_several_files_are_accepted(tmp_path: Path) -> None:
    preset(tmp_path / "one", PRESET)
    index = {"weight_map": {"a": "model.weights.h5", "b": ["model.weights.h5", "model_00001.weights.h5"]}}
    preset(tmp_path / "several", PRESET, **{"model.weights": index})
    hdf5(tmp_path / "several" / "model_00001.weights.h5", x=[1.0])
    assert [inspect_source(tmp_path / name).weights for name in ("one", "several")] == [1, 2]


def test_a_full_disk_is_not_reported_as_a_problem_of_the_model(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models are unpacked into the user's cache directory, because `/tmp` may be small."""
    directories = []

    def full(**options: Any) -> IO[bytes]:
        directories.append(options.get("dir"))
        return open("/dev/full", "r+b")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(OSError, match="No space left") as raised:
        inspect_source(good)
    assert (raised.value.errno, directories) == (errno.ENOSPC, [tmp_path / "mistify"])


def test_a_registered_class_is_accepted(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.keras"
    config = config_of(good)
    layer(config, "ReLU").update(class_name="Own", module=None, registered_name="Mine>Own")
    rewritten(good, path, config=json.dumps(config).encode())
    assert inspect_source(path, registered={"Mine>Own"}.__contains__).kind is SourceKind.KERAS
    refused(path, "layer 'relu' is a Own")


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"total_bytes": 1000}, "bytes"),
        ({"config_bytes": 100}, "a configuration of"),
        ({"config_depth": 3}, "more than 3 levels deep"),
        ({"entries": 2}, "an archive of 3 members"),
        ({"weights": 10}, "layers with at least 57 weights"),
    ],
)
def test_an_exceeded_limit_is_reported(good: Path, limits: dict[str, int], text: str) -> None:
    refused(good, text, **limits)


def test_the_sizes_of_arrays_add_up_and_links_count_once(good: Path, tmp_path: Path) -> None:
    hdf5(tmp_path / "two.h5", config_of(good), x=np.ones(600, np.uint8), y=np.ones(600, np.uint8))
    with h5py.File(tmp_path / "two.h5", "r+") as file:
        file["z"] = file["x"]
    assert inspect_source(tmp_path / "two.h5").weights == 1200
    refused(tmp_path / "two.h5", "more than 1 arrays", entries=1)


def test_the_known_architectures_are_those_of_keras() -> None:
    assert set(APPLICATIONS) == {name for name in vars(keras.applications) if name[0].isupper()}
    assert len(APPLICATIONS) == 40
