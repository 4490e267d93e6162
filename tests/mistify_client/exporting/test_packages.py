"""Packages are exported to files, or refused with the reason and what to do."""

import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import keras
import onnx
import tensorflow as tf

from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.package.records import describe_file
from mistify.package.source import SOURCE, SourceInterface, SourceTensor
from mistify_client import load
from mistify_client.exporting.packages import export_onnx
from mistify_client.exporting.registry import OPERATORS
from mistify_client.runtime.versions import install
from mistify_client.slicing.customizing import SliceRequest, customize
from tests.mistify_client.exporting.compared import in_onnx_runtime
from tests.support import factories
from tests.support.adaptable import make_package
from tests.support.paths import DATA


def images(count: int = 5) -> np.ndarray:
    return np.random.default_rng(0).uniform(0, 16, (count, 8, 8, 1)).astype(np.float32)


def test_a_file_has_a_free_batch_and_says_where_it_comes_from(tmp_path: Path) -> None:
    package, file = make_package(tmp_path / "package"), tmp_path / "net.onnx"
    exported = export_onnx(package, file)
    model, manifest = onnx.load(file), Manifest.load(package)
    assert exported.branch is None
    assert exported.nodes == len(model.graph.node)
    assert (model.producer_name, model.producer_version) == ("mistify", version("mistify-porting"))
    assert {entry.key: entry.value for entry in model.metadata_props} == {
        "mistify.job": manifest.job,
        "mistify.goal": manifest.goal,
    }
    for tensors, infos in ((model.graph.input, manifest.inputs), (model.graph.output, manifest.outputs)):
        assert [tensor.name for tensor in tensors] == [info.name for info in infos]
        sizes = [
            [one.dim_param or one.dim_value for one in tensor.type.tensor_type.shape.dim]
            for tensor in tensors
        ]
        assert sizes == [["batch", *info.shape[1:]] for info in infos]


def test_outputs_are_those_of_the_package_and_their_difference_is_reported(tmp_path: Path) -> None:
    package = make_package(tmp_path / "package")
    exported = export_onnx(package, tmp_path / "net.onnx")
    model = load(package)
    (name,) = (info.name for info in model.outputs)
    made = in_onnx_runtime((tmp_path / "net.onnx").read_bytes(), {model.inputs[0].name: images()})
    expected = np.asarray(model(images()))
    np.testing.assert_allclose(made[name], expected, atol=1e-5 * expected.max())
    assert exported.difference is not None
    assert exported.difference < 1e-5


@pytest.mark.parametrize("recorded", [False, True])
def test_outputs_are_in_the_order_of_the_source(tmp_path: Path, recorded: bool) -> None:
    package = make_package(tmp_path / "package", "trainable_kinds")
    manifest = Manifest.load(package)
    names = [info.name for info in manifest.outputs]
    if recorded:
        tensors = [
            SourceTensor(
                name=info.name, source=info.name, axes=tuple(range(len(info.shape))), dtype="float32"
            )
            for info in (*manifest.inputs, *manifest.outputs)
        ]
        with_source(package, *tensors)
    export_onnx(package, tmp_path / "net.onnx")
    assert names != sorted(names)
    assert [one.name for one in onnx.load(tmp_path / "net.onnx").graph.output] == names


def test_of_branches_the_own_network_of_the_goal_is_exported(tmp_path: Path) -> None:
    package = make_package(tmp_path / "package", "adaptable_branches")
    exported = export_onnx(package, tmp_path / "net.onnx")
    model = load(package)
    assert exported.branch == model.manifest.default_branch
    entries = onnx.load(tmp_path / "net.onnx").metadata_props
    assert ("mistify.branch", str(exported.branch)) in [(entry.key, entry.value) for entry in entries]
    made = in_onnx_runtime((tmp_path / "net.onnx").read_bytes(), {model.inputs[0].name: images()})
    expected = np.asarray(model(images()))
    np.testing.assert_allclose(made[model.outputs[0].name], expected, atol=1e-5 * expected.max())


def test_of_a_package_with_exits_the_whole_network_is_exported(tmp_path: Path) -> None:
    package = shutil.copytree(DATA / "exits", tmp_path / "package")
    assert export_onnx(package, tmp_path / "net.onnx").exits


def test_the_current_version_is_exported(tmp_path: Path) -> None:
    package = make_package(tmp_path / "package")
    other = make_package(tmp_path / "other", "adaptable_float16")
    manifest = Manifest.load(other).model_copy(update={"goal": "tuned"})
    manifest.save(other)
    install(package, other)
    export_onnx(package, tmp_path / "net.onnx")
    entries = onnx.load(tmp_path / "net.onnx").metadata_props
    assert ("mistify.goal", "tuned") in [(entry.key, entry.value) for entry in entries]


def with_source(package: Path, *tensors: SourceTensor) -> Path:
    """Record the interface of a package's source: the input and the output."""
    content = SourceInterface(inputs=tensors[:1], outputs=tensors[1:]).model_dump_json()
    (package / SOURCE).write_text(content)
    manifest = Manifest.load(package)
    files = {**manifest.files, SOURCE: describe_file(package / SOURCE)}
    manifest.model_copy(update={"files": files}).save(package)
    return package


def test_inputs_and_outputs_are_those_of_the_source(tmp_path: Path) -> None:
    package = make_package(tmp_path / "package")
    model = load(package)
    image, digit = model.inputs[0].name, model.outputs[0].name
    with_source(
        package,
        SourceTensor(name=image, source="input.1", axes=(0, 3, 1, 2), dtype="float64"),
        SourceTensor(name=digit, source="/out", axes=(0, 1), dtype="float32"),
    )
    exported = export_onnx(package, tmp_path / "net.onnx")
    assert exported.difference is not None
    assert exported.difference < 1e-5
    proto = onnx.load(tmp_path / "net.onnx")
    assert [node.op_type for node in proto.graph.node if node.op_type == "Transpose"] == []
    first = images().transpose(0, 3, 1, 2).astype(np.float64)
    made = in_onnx_runtime((tmp_path / "net.onnx").read_bytes(), {"input.1": first})
    expected = np.asarray(model(images()))
    np.testing.assert_allclose(made["/out"], expected, atol=1e-5 * expected.max())


def test_a_slice_that_a_device_cut_keeps_the_names_of_the_source(tmp_path: Path) -> None:
    package = with_source(
        factories.make_package(tmp_path / "package"),
        SourceTensor(name="image", source="input.1", axes=(0, 3, 1, 2), dtype="float32"),
        SourceTensor(name="answer", source="/out", axes=(0, 1), dtype="float32"),
    )
    customize(package, SliceRequest("exactly:2,odd"), seconds=1e-3)
    export_onnx(package, tmp_path / "net.onnx")
    first = factories.images(4).transpose(0, 3, 1, 2)
    made = in_onnx_runtime((tmp_path / "net.onnx").read_bytes(), {"input.1": first})
    expected = np.asarray(load(package)(factories.images(4)))
    np.testing.assert_allclose(made["/out"], expected, atol=1e-5 * expected.max())


@pytest.mark.parametrize(
    ("name", "axes"), [("other", (0, 3, 1, 2)), ("image", (0, 2, 1)), ("image", (0, 4, 1, 2, 3))]
)
def test_a_layout_that_does_not_fit_is_damage(tmp_path: Path, name: str, axes: tuple[int, ...]) -> None:
    package = make_package(tmp_path / "package")
    image, digit = load(package).inputs[0].name, load(package).outputs[0].name
    with_source(
        package,
        SourceTensor(name=image if name == "image" else name, source="x", axes=axes, dtype="float32"),
        SourceTensor(name=digit, source="y", axes=(0, 1), dtype="float32"),
    )
    with pytest.raises(MistifyError, match=f"no layout that fits {image}") as error:
        export_onnx(package, tmp_path / "net.onnx")
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE


@pytest.mark.parametrize("precision", ["dynamic", "int8", "int8-qat"])
def test_quantized_packages_are_refused_with_what_to_do(tmp_path: Path, precision: str) -> None:
    package = make_package(tmp_path / "package")
    manifest = Manifest.load(package).model_copy(update={"quantization": Quantization(precision)})
    manifest.save(package)
    with pytest.raises(MistifyError, match='port the goal with "quantization": "none"') as error:
        export_onnx(package, tmp_path / "net.onnx")
    assert error.value.code is ErrorCode.INVALID_MODEL
    assert not (tmp_path / "net.onnx").exists()


def test_existing_files_and_missing_directories_are_refused(tmp_path: Path) -> None:
    package = make_package(tmp_path / "package")
    (tmp_path / "net.onnx").write_text("mine")
    with pytest.raises(MistifyError, match="which exists") as error:
        export_onnx(package, tmp_path / "net.onnx")
    assert error.value.code is ErrorCode.INVALID_CONFIG
    assert (tmp_path / "net.onnx").read_text() == "mine"
    with pytest.raises(MistifyError, match="whose directory does not exist"):
        export_onnx(package, tmp_path / "none" / "net.onnx")


def test_missing_and_damaged_packages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MistifyError) as error:
        export_onnx(tmp_path / "none", tmp_path / "net.onnx")
    assert error.value.code is ErrorCode.NOT_FOUND
    package = make_package(tmp_path / "package")
    network = package / "serve.tflite"
    network.write_bytes(network.read_bytes()[:-1] + b"x")
    with pytest.raises(MistifyError) as error:
        export_onnx(package, tmp_path / "net.onnx")
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE
    assert not list(tmp_path.glob("net.onnx*"))


def test_operators_without_an_equivalent_are_named_with_their_number(tmp_path: Path) -> None:
    package = make_package(tmp_path / "package")
    inputs = keras.Input((6,), name="x")
    ranked = keras.ops.sort(keras.ops.tanh(keras.ops.sort(inputs)))
    network = tf.lite.TFLiteConverter.from_keras_model(keras.Model(inputs, ranked)).convert()
    (package / "serve.tflite").write_bytes(network)
    manifest = Manifest.load(package)
    files = {**manifest.files, "serve.tflite": describe_file(package / "serve.tflite")}
    manifest.model_copy(update={"files": files}).save(package)
    with pytest.raises(MistifyError, match=r"TOPK_V2 at .* and 1 more; expected") as error:
        export_onnx(package, tmp_path / "net.onnx")
    assert error.value.code is ErrorCode.INVALID_MODEL


def test_a_network_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = make_package(tmp_path / "package")
    monkeypatch.setitem(OPERATORS, "SOFTMAX", lambda builder, call: builder.value(call.argument(0)))
    with pytest.raises(MistifyError, match="differs from") as error:
        export_onnx(package, tmp_path / "net.onnx")
    assert error.value.code is ErrorCode.INTERNAL
    assert not list(tmp_path.glob("net.onnx*"))


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_onnx_its_installation_is_advised_and_without_its_runtime_nothing_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    package = make_package(tmp_path / "package")
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "onnxruntime":
        assert export_onnx(package, tmp_path / "net.onnx").difference is None
        return
    with pytest.raises(MistifyError, match=r"pip install 'mistify-porting\[onnx\]'"):
        export_onnx(package, tmp_path / "net.onnx")
