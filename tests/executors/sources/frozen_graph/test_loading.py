"""SavedModels without Keras structure: loading valid ones, and refusing others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from executors.inspection import SourceKind, inspect_source
from executors.sources.frozen_graph.loading import load_graph
from executors.sources.frozen_graph.source import FrozenGraph
from executors.sources.keras.loading import load_keras
from executors.sources.loading import read_source
from executors.structure.signature import Activation
from mistify.errors import ErrorCode, MistifyError
from tests.support.saved_models import Digits, save_digits

X = np.random.default_rng(0).uniform(size=(5, 8, 8, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Digits]:
    path = tmp_path_factory.mktemp("graph") / "digits"
    return path, save_digits(path)


def run(graph: FrozenGraph, x: Any = X) -> Any:
    (actual,) = tf.function(graph.__call__)(tf.constant(x))
    return actual.numpy()


def refused(path: Path, text: str, load: Callable[[Path], Any] = load_graph) -> None:
    with pytest.raises(MistifyError) as caught:
        load(path)
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert text in caught.value.problems[0].value


def test_a_graph_computes_the_same_as_its_module(saved: tuple[Path, Digits]) -> None:
    path, module = saved
    graph = load_graph(path)
    np.testing.assert_allclose(run(graph), module.serve(tf.constant(X))["digit"], atol=1e-6)
    assert run(graph, X[:1]).shape == (1, 10)


def test_a_graph_describes_its_inputs_and_outputs(saved: tuple[Path, Digits]) -> None:
    signature = load_graph(saved[0]).signature
    (arrays,), (output,) = signature.inputs, signature.outputs
    assert (arrays.name, arrays.shape, arrays.dtype) == ("image", (8, 8, 1), "float32")
    assert (output.name, output.shape, output.activation) == ("digit", (10,), Activation.SOFTMAX)


def test_a_graph_file_is_self_contained(saved: tuple[Path, Digits], tmp_path: Path) -> None:
    graph = load_graph(saved[0])
    graph.write(tmp_path / "kept.pb")
    copy = read_source(tmp_path / "kept.pb")
    assert isinstance(copy, FrozenGraph)
    np.testing.assert_array_equal(run(copy), run(graph))
    assert copy.signature == graph.signature
    assert not any("Variable" in node.op for node in copy.meta.graph_def.node)


def test_outputs_keep_their_names(tmp_path: Path) -> None:
    class Two(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "a"), tf.TensorSpec([None, 3])])
        def serve(self, a: tf.Tensor, b: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"sum": a + b, "difference": a - b, "chance": tf.sigmoid(a)}

    module = Two()
    tf.saved_model.save(module, str(tmp_path / "two"), signatures={"serving_default": module.serve})
    graph = load_graph(tmp_path / "two")
    a, b = np.ones((2, 3), np.float32), np.full((2, 3), 3, np.float32)
    assert [spec.name for spec in graph.inputs] == ["a", "b"]
    actual = dict(zip(graph.outputs, tf.function(graph.__call__)(a, b), strict=True))
    assert {name: float(tensor[0, 0]) for name, tensor in actual.items()} == {
        "sum": 4.0,
        "difference": -2.0,
        "chance": pytest.approx(1 / (1 + np.exp(-1))),
    }
    activations = {output.name: output.activation for output in graph.signature.outputs}
    assert activations["chance"] is Activation.SIGMOID
    assert activations["sum"] is Activation.NONE


def test_a_graph_has_no_keras_model(saved: tuple[Path, Digits]) -> None:
    assert inspect_source(saved[0]).kind is SourceKind.GRAPH
    refused(saved[0], "whose architecture cannot be adapted", load_keras)


def save(path: Path, forward: Callable[[tf.Tensor], Any], shape: list[int | None], **extra: Any) -> Path:
    module = tf.Module()
    module.extra = extra
    module.serve = tf.function(forward, input_signature=[tf.TensorSpec(shape, tf.float32, "x")])
    tf.saved_model.save(module, str(path), signatures={"serving_default": module.serve})
    return path


def python(x: tf.Tensor) -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(lambda y: y, [x], tf.float32), [None, 4])


def reading(x: tf.Tensor) -> tf.Tensor:
    return x + tf.cast(tf.strings.length(tf.io.read_file("/etc/hostname")), tf.float32)


def writing(x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.io.write_file("/tmp/written", "x")]):  # noqa: S108
        return tf.identity(x)


def debugged(x: tf.Tensor) -> tf.Tensor:
    return tf.raw_ops.DebugIdentity(input=x, debug_urls=["file:///tmp/written"])


def described_elsewhere(x: tf.Tensor) -> tf.Tensor:
    options = {"message_type": "M", "field_names": ["f"], "output_types": [tf.float32]}
    decoded = tf.raw_ops.DecodeProtoV2(bytes=[b""], descriptor_source="/etc/hostname", **options)
    return x + tf.reduce_sum(decoded.values[0])


def words_of_a_file(x: tf.Tensor) -> tf.Tensor:
    files = {"new_vocab_file": "/etc/hostname", "old_vocab_file": "/etc/hostname"}
    known = tf.raw_ops.GenerateVocabRemapping(**files, new_vocab_offset=0, num_new_vocab=1)
    return x + tf.cast(known.num_present, tf.float32)


def random(x: tf.Tensor) -> tf.Tensor:
    return x + tf.random.uniform(tf.shape(x))


def checked(x: tf.Tensor) -> tf.Tensor:
    tf.debugging.assert_greater(tf.shape(x)[0], 0, "no rows")
    tf.print("rows", tf.shape(x))
    with tf.control_dependencies([tf.debugging.assert_all_finite(x, "not finite"), tf.no_op()]):
        return 2 * tf.debugging.check_numerics(x + 1, "not finite")


def checked_on_one_side(x: tf.Tensor) -> tf.Tensor:
    def above() -> tf.Tensor:
        with tf.control_dependencies([tf.debugging.assert_positive(tf.reduce_sum(x))]):
            return tf.constant(1.0)

    return x + tf.cond(tf.reduce_sum(x) > 1, above, lambda: tf.constant(2.0))


@pytest.mark.parametrize("forward", [checked, checked_on_one_side])
def test_operations_without_effect_are_removed(tmp_path: Path, forward: Callable[[tf.Tensor], Any]) -> None:
    graph = load_graph(save(tmp_path / "graph", forward, [None, 4]))
    operations = {node.op for node in graph.meta.graph_def.node}
    assert operations.isdisjoint({"Assert", "CheckNumerics", "PrintV2", "NoOp", "StringFormat"})
    assert not graph.meta.graph_def.library.function
    for x in np.ones((2, 4), np.float32), np.zeros((2, 4), np.float32):
        np.testing.assert_array_equal(run(graph, x), forward(tf.constant(x)))


def printing_into_a_file(x: tf.Tensor) -> tf.Tensor:
    tf.print("rows", output_stream="file:///tmp/written")
    return x + 1


@pytest.mark.parametrize(
    ("forward", "shape", "text"),
    [
        (printing_into_a_file, [None, 4], "the operation PrintV2"),
        (python, [None, 4], "the operation "),
        (reading, [None, 4], "the operation ReadFile"),
        (writing, [None, 4], "the operation WriteFile"),
        (debugged, [None, 4], "the operation DebugIdentity"),
        (described_elsewhere, [None, 4], "the operation DecodeProtoV2"),
        (words_of_a_file, [None, 4], "the operation GenerateVocabRemapping"),
        (random, [None, 4], "the operation RandomUniform"),
        (tf.identity, [1, 4], "x of shape [1, 4]"),
        (tf.identity, [None, None], "x of shape [None, None]"),
        (tf.reduce_sum, [None, 4], "output_0 of shape []"),
    ],
)
def test_graphs_that_cannot_be_packaged_are_refused(
    tmp_path: Path, forward: Callable[[tf.Tensor], Any], shape: list[int | None], text: str
) -> None:
    refused(save(tmp_path / "graph", forward, shape), text)


def test_tables_are_refused(tmp_path: Path) -> None:
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2.0]), 0.0)
    path = save(tmp_path / "graph", lambda x: table.lookup(tf.cast(x, tf.int32)), [None, 4], table=table)
    refused(path, "a SavedModel with a resource")


def edited(path: Path, change: Callable[[Any], None]) -> Path:
    """Return a SavedModel with a change in its only graph."""
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((path / "saved_model.pb").read_bytes())
    change(saved_model.meta_graphs[0])
    (path / "saved_model.pb").write_bytes(saved_model.SerializeToString())
    return path


def checkpoint_writer(prefix: Path) -> Any:
    """Return a function that could be mistaken for one that saves an object, and writes a file."""

    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def write(name: tf.Tensor) -> list[dict[str, tf.Tensor]]:
        content = {"tensor_names": ["a"], "shape_and_slices": [""], "tensors": [tf.constant(1.0)]}
        tf.raw_ops.SaveV2(prefix=str(prefix), **content)
        return [{"name": name, "tensor": tf.constant(1.0), "slice_spec": tf.constant("")}]

    return write


def test_objects_that_save_themselves_are_refused(tmp_path: Path) -> None:
    def change(meta: Any) -> None:
        nodes = meta.object_graph_def.nodes
        place = next(at for at, node in enumerate(nodes) if "write" in str(node.function.concrete_functions))
        saveable = nodes[0].saveable_objects["a"]
        saveable.save_function = saveable.restore_function = place

    write = checkpoint_writer(tmp_path / "written")
    path = edited(save(tmp_path / "graph", tf.identity, [None, 4], write=write), change)
    refused(path, "a SavedModel with objects that save or restore themselves")
    assert [file.name for file in tmp_path.iterdir()] == ["graph"]


def test_objects_of_registered_classes_are_refused(tmp_path: Path) -> None:
    def change(meta: Any) -> None:
        extra = next(node for node in meta.object_graph_def.nodes if "dict" in node.user_object.identifier)
        extra.registered_name = "tf.StaticHashTable"

    path = edited(save(tmp_path / "graph", tf.identity, [None, 4], extra={}), change)
    refused(path, "a SavedModel with a tf.StaticHashTable")


def test_functions_of_objects_must_not_touch_checkpoints(tmp_path: Path) -> None:
    """Objects can have functions with names that loading calls, and these can call others."""
    inner = checkpoint_writer(tmp_path / "written")
    write = tf.function(lambda: inner("a"), input_signature=[])
    path = save(tmp_path / "graph", tf.identity, [None, 4], write=write)
    refused(path, "the operation SaveV2")


def test_functions_that_are_not_inlined_are_checked(tmp_path: Path) -> None:
    kept = tf.function(random, experimental_attributes={"_noinline": True})

    def change(meta: Any) -> None:
        for function in meta.graph_def.library.function:
            for node in function.node_def:
                node.op = node.op.removeprefix("Stateful")

    path = save(tmp_path / "graph", lambda x: tf.ensure_shape(kept(x), [None, 4]), [None, 4])
    refused(edited(path, change), "the operation RandomUniform")


def test_constants_and_functions_that_only_compute_are_accepted(tmp_path: Path) -> None:
    doubled = tf.function(lambda x: 2 * x, experimental_attributes={"_noinline": True})
    added = tf.constant(np.ones((4, 4), np.float32))

    def forward(x: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(doubled(x) @ added, [None, 4])

    graph = load_graph(save(tmp_path / "graph", forward, [None, 4], added=added))
    np.testing.assert_array_equal(run(graph, np.ones((2, 4), np.float32)), np.full((2, 4), 8))


def test_a_damaged_graph_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "graph", tf.identity, [None, 4])
    (path / "saved_model.pb").write_bytes(b"\xff" * 50)
    refused(path, "a saved_model.pb that is damaged")
    (path / "saved_model.pb").write_bytes(b"\x08\x01")
    refused(path, "a SavedModel of TensorFlow 1")


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "digits"
    save_digits(path)
    (path / "variables" / "variables.index").write_bytes(b"")
    refused(path, "a SavedModel that cannot be loaded")


def test_a_graph_without_the_signature_is_refused(tmp_path: Path) -> None:
    module = tf.Module()
    tf.saved_model.save(module, str(tmp_path / "graph"))
    refused(tmp_path / "graph", "the signatures none")
