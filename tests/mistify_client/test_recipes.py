"""The recipes in docs/recipes run packages without Mistify, and give the same outputs."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mistify_client
from mistify.config.data.metric import Metric
from mistify.package.manifest import Manifest
from mistify.package.records import describe_file
from mistify.package.training import weights_in
from mistify_client.runtime import versions
from mistify_client.tuning.installing import install_tuned
from mistify_client.tuning.trainer import load_trainer
from mistify_client.tuning.training_loop import Score
from mistify_server.worker.packaging.conversion.fixed_batch import with_fixed_batch
from tests.support.paths import DATA, REPOSITORY
from tests.support.tiny_packages import COMPARISON, IMAGE, PAIR, SCORES, make_package

RECIPES = REPOSITORY / "docs" / "recipes"

#: Metrics where lower is better: built-in ones, and one of a plug-in.
ERRORS = ("mse", "mae", "pinball_error")

#: Runs the recipe, and asserts that it does not import Mistify.
ALONE = """
import runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
assert not [name for name in sys.modules if name.startswith(("mistify", "executors", "tensorflow"))]
"""


def recipe() -> Any:
    """Return the Python recipe as a module."""
    spec = importlib.util.spec_from_file_location("recipe", RECIPES / "package.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*command: Any) -> bytes:
    finished = subprocess.run([str(part) for part in command], capture_output=True, check=False)
    assert finished.returncode == 0, finished.stderr.decode()
    return finished.stdout


def by_python(package: Path, inputs: dict[str, Any], directory: Path, *milliseconds: float) -> Any:
    """Return the outputs and the printed text of the Python recipe."""
    np.savez(directory / "inputs.npz", **inputs)
    outputs = directory / "outputs.npz"
    printed = run(sys.executable, "-c", ALONE, RECIPES / "package.py", package, directory / "inputs.npz",
                  outputs, *milliseconds)  # fmt: skip
    with np.load(outputs) as arrays:
        return dict(arrays), printed.decode()


def compiles(arguments: list[str]) -> bool:
    return subprocess.run(["g++", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the C++ recipe without warnings."""
    headers = ["-include", "nlohmann/json.hpp", "-include", "openssl/sha.h", "-x", "c++", "-E", os.devnull]
    if shutil.which("g++") is None or not compiles(headers):
        pytest.skip("needs g++, nlohmann-json3-dev and libssl-dev")
    litert = Path(importlib.util.find_spec("ai_edge_litert").submodule_search_locations[0])
    program = tmp_path_factory.mktemp("recipes") / "package"
    run("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", RECIPES / "package.cpp", "-o", program,
        litert / "libLiteRt.so", "-lcrypto", f"-Wl,-rpath,{litert}")  # fmt: skip
    return program


def by_program(
    program: Path, package: Path, inputs: list[Any], directory: Path, milliseconds: Any = 9
) -> Any:
    """Return the output values of the C++ recipe."""
    files = [directory / f"{number}.bin" for number in range(len(inputs))]
    for file, array in zip(files, inputs, strict=True):
        file.write_bytes(array.tobytes())
    return np.frombuffer(run(program, package, milliseconds, *files), np.float32)


@pytest.fixture
def plain(tmp_path: Path, data: Path) -> Path:
    """`image` -> `scores`, with class names."""
    package = make_package(tmp_path / "plain", data / "tiny_fixed.tflite", (IMAGE,), (SCORES,))
    labels = {"scores": ("cat", "dog", "eel")}
    Manifest.load(package).model_copy(update={"labels": labels}).save(package)
    return package


@pytest.fixture
def branches(branch_package: Path, data: Path) -> Path:
    """Return a package with branches of 0.1, 0.4 and 0.7 ms."""
    network = branch_package / "serve.tflite"
    shutil.copyfile(data / "tiny_branches_fixed.tflite", network)
    manifest = Manifest.load(branch_package)
    own = (
        branch.model_copy(update={"latency": branch.latency.model_copy(update={"median_ms": milliseconds})})
        for branch, milliseconds in zip(manifest.branches, (0.1, 0.4, 0.7), strict=True)
    )
    files = {"serve.tflite": describe_file(network)}
    manifest.model_copy(update={"branches": tuple(own), "files": files}).save(branch_package)
    return branch_package


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """Return a package whose current version has other weights than the shipped one."""
    package = tmp_path / "tuned"
    shutil.copytree(DATA / "trainable", package)
    (package / "expected.npz").unlink()
    weights = {name: 1.5 * array + 0.01 for name, array in load_trainer(package).weights().items()}
    install_tuned(package, package, weights, Score(0.5, 0.25), 8)
    return package


def test_the_python_recipe_runs_any_batch_and_names_classes(
    plain: Path, tmp_path: Path, expected: Any
) -> None:
    outputs, printed = by_python(plain, {"image": expected["image"]}, tmp_path)
    np.testing.assert_allclose(outputs["scores"], expected["scores"], atol=1e-6)
    names = [("cat", "dog", "eel")[number] for number in expected["scores"].argmax(1)]
    assert printed.split() == ["scores", *names]


def test_the_python_recipe_quantizes(int8_package: Path, tmp_path: Path, expected: Any) -> None:
    outputs, _ = by_python(int8_package, {"image": expected["image"]}, tmp_path)
    (scores,) = mistify_client.load(int8_package).outputs
    np.testing.assert_array_equal(
        scores.dequantized(outputs["scores"]), mistify_client.load(int8_package)(expected["image"])
    )


@pytest.mark.parametrize(("milliseconds", "branch"), [(0.05, 0), (0.1, 0), (0.5, 1), (9, 2)])
def test_the_python_recipe_chooses_a_branch(
    branches: Path, tmp_path: Path, expected: Any, milliseconds: float, branch: int
) -> None:
    outputs, _ = by_python(branches, {"image": expected["image"]}, tmp_path, milliseconds)
    np.testing.assert_allclose(outputs["scores"], expected["branches"][branch], atol=1e-5)


@pytest.mark.parametrize("metric", ERRORS)
def test_the_choice_respects_error_metrics_and_slower_devices(branches: Path, metric: str) -> None:
    content = json.loads(Manifest.load(branches).model_dump_json())
    assert recipe().chosen_branch(content, 0.5, slowdown=2) == 0
    assert recipe().chosen_branch(content, 0.5) == 1
    content["metric"] = metric
    assert recipe().chosen_branch(content, 0.5) == 0
    content["metric"] = f"{metric}_of_a_kind"  # here higher is better
    assert recipe().chosen_branch(content, 0.5) == 1


def test_the_cpp_recipe_runs_one_example(program: Path, plain: Path, tmp_path: Path, expected: Any) -> None:
    outputs = by_program(program, plain, [expected["image"][:1]], tmp_path)
    np.testing.assert_allclose(outputs, expected["scores"][0], atol=1e-6)


def test_the_cpp_recipe_chooses_a_branch(
    program: Path, branches: Path, tmp_path: Path, expected: Any
) -> None:
    for milliseconds, branch in ((0.05, 0), (0.5, 1), (9, 2)):
        outputs = by_program(program, branches, [expected["image"][:1]], tmp_path, milliseconds)
        np.testing.assert_allclose(outputs, expected["branches"][branch][0], atol=1e-5)


@pytest.mark.parametrize("metric", ERRORS)
def test_the_cpp_recipe_chooses_the_branch_with_the_lowest_error(
    program: Path, branches: Path, tmp_path: Path, expected: Any, metric: str
) -> None:
    for name, branch in ((metric, 0), (f"{metric}_of_a_kind", 1)):
        Manifest.load(branches).model_copy(update={"metric": Metric(name)}).save(branches)
        outputs = by_program(program, branches, [expected["image"][:1]], tmp_path, 0.5)
        np.testing.assert_allclose(outputs, expected["branches"][branch][0], atol=1e-5)


def test_inputs_and_outputs_of_the_cpp_recipe_are_in_the_order_of_the_manifest(
    program: Path, tmp_path: Path, data: Path, expected: Any
) -> None:
    network = tmp_path / "two.tflite"
    network.write_bytes(with_fixed_batch((data / "tiny_two.tflite").read_bytes()))
    pair = [expected["left"][:1], expected["right"][:1]]
    for number, order in enumerate((1, -1)):
        package = make_package(tmp_path / str(number), network, PAIR[::order], COMPARISON[::order])
        outputs = [expected[info.name][0] for info in COMPARISON[::order]]
        actual = by_program(program, package, pair[::order], tmp_path)
        np.testing.assert_allclose(actual, np.concatenate(outputs), atol=1e-5)


def test_the_python_recipe_runs_the_tuned_version(tuned: Path, tmp_path: Path) -> None:
    model = mistify_client.load(tuned)
    (info,) = model.inputs
    image = np.random.default_rng(0).uniform(size=(1, *info.shape[1:])).astype(np.float32)
    shipped = load_trainer(DATA / "trainable").infer({info.name: image})[model.outputs[0].name]
    assert np.abs(model(image) - shipped).max() > 0.01
    outputs, _ = by_python(tuned, {info.name: image}, tmp_path)
    np.testing.assert_allclose(outputs[model.outputs[0].name], model(image), atol=1e-6)


def test_both_recipes_read_the_weights_of_the_tuned_version(program: Path, tuned: Path) -> None:
    version = recipe().current(tuned)
    manifest, network = recipe().verified(version), (version / "serve.tflite").read_bytes()
    weights = weights_in(network, Manifest.load(version).training)
    assert any(len(array.shape) == 4 for array in weights.values())
    for name, array in weights.items():
        np.testing.assert_array_equal(recipe().weight(manifest, network, name), array)
        read = np.frombuffer(run(program, tuned, "weight", name), np.float32)
        np.testing.assert_array_equal(read, array.ravel())


def test_versions_of_a_replaced_package_do_not_count(program: Path, tuned: Path, tmp_path: Path) -> None:
    manifest = Manifest.load(tuned)
    manifest.model_copy(update={"goal": "another"}).save(tuned)
    assert recipe().current(tuned) == tuned
    assert versions.current(tuned) == tuned
    (name, *_) = (weight.name for weight in manifest.training.weights)
    shipped = weights_in((tuned / "serve.tflite").read_bytes(), manifest.training)[name]
    read = np.frombuffer(run(program, tuned, "weight", name), np.float32)
    np.testing.assert_array_equal(read, shipped.ravel())


def test_damage_is_detected(program: Path, plain: Path, tmp_path: Path) -> None:
    (plain / "serve.tflite").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="damaged"):
        recipe().verified(plain)
    (tmp_path / "input").touch()
    finished = subprocess.run([program, plain, "9", tmp_path / "input"], capture_output=True, check=False)
    assert (finished.returncode, finished.stderr) == (1, b"serve.tflite is damaged\n")
