"""Loading of SavedModels without Keras structure, as graphs of TensorFlow operations.

The graph of one signature is extracted with its weights as constants, after a check that it only computes:
graphs with operations that access files, run Python or keep state are refused.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.framework.graph_util_impl import extract_sub_graph

from executors.inspection import inspect_source
from executors.inspection.directories import GRAPH
from executors.inspection.errors import invalid
from executors.inspection.limits import GIB
from executors.sources.errors import first_line
from executors.sources.frozen_graph.checks import is_message, remove_checks
from executors.sources.frozen_graph.source import SIGNATURE, FrozenGraph
from executors.sources.resource_limits import limited_resources

#: Memory limit for loading a graph, as a multiple of its file size, and its minimum.
_COPIES: Final = 8
_LEAST_MEMORY: Final = 2 * GIB

#: Stateful operations with which a SavedModel loads its weights, calls functions, or trains.
_STATEFUL: Final = frozenset(
    {"VarHandleOp", "ReadVariableOp", "AssignVariableOp", "VarIsInitializedOp", "Placeholder"}
    | {"DisableCopyOnRead"}
    | {"PartitionedCall", "StatefulPartitionedCall", "If", "While", "Case"}
    | {"Assert", "CheckNumerics", "CheckNumericsV2"}
    | {"RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt"}
)

#: Operations of the two functions that save and restore weights, which loading does not call.
_CHECKPOINTS: Final = frozenset({"SaveV2", "RestoreV2", "MergeV2Checkpoints"})

#: Operations that access files or run Python, although they are not marked as stateful.
_SIDE_EFFECTS: Final = frozenset(
    {"ReadFile", "MatchingFiles", "Restore", "RestoreSlice", "PyFuncStateless"}
    | {"DecodeProtoV2", "EncodeProto", "GenerateVocabRemapping"}
    | {"DebugIdentity", "DebugIdentityV2", "DebugIdentityV3"}
    | {"DebugNanCount", "DebugNumericSummary", "DebugNumericSummaryV2"}
)

#: Allowed kinds of objects in a SavedModel; other kinds have setup functions of their own.
_OBJECTS: Final = frozenset(
    {"user_object", "function", "bare_concrete_function", "variable", "constant", "captured_tensor"}
)

#: Allowed class names of objects in a SavedModel.
_CLASSES: Final = frozenset({"", "tf.TrackableConstant"})

_ALLOWED_OBJECTS: Final = "only weights and functions"


def load_graph(path: Path) -> FrozenGraph:
    """Return the graph of a SavedModel's `serving_default`.

    Raises:
        MistifyError: INVALID_MODEL if it is damaged, does more than compute, or has no such signature with a
            free batch dimension and otherwise known sizes.
    """
    with limited_resources(path, _LEAST_MEMORY):
        inspected = inspect_source(path)
        _check_operations(path)
    with limited_resources(path, _LEAST_MEMORY + _COPIES * inspected.size):
        try:
            loaded = tf.saved_model.load(str(path))
        except Exception as error:
            raise invalid(path, f"a SavedModel that cannot be loaded ({first_line(error)})") from error
        if SIGNATURE not in loaded.signatures:
            actual = f"the signatures {', '.join(loaded.signatures) or 'none'}"
            raise invalid(path, actual, SIGNATURE, f'save it with signatures={{"{SIGNATURE}": FUNCTION}}')
        return _frozen(path, loaded.signatures[SIGNATURE])


def _check_operations(path: Path) -> None:
    """Refuse graphs that would do more than compute when they are loaded or run."""
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString((path / GRAPH).read_bytes())
    except DecodeError as error:
        raise invalid(path, f"a {GRAPH} that is damaged") from error
    if len(saved.meta_graphs) != 1 or not saved.meta_graphs[0].HasField("object_graph_def"):
        raise invalid(
            path, "a SavedModel of TensorFlow 1", "one of TensorFlow 2", "save it again with TensorFlow 2"
        )
    meta = saved.meta_graphs[0]
    for node in meta.object_graph_def.nodes:
        _check_object(path, node)
    graph = meta.graph_def
    _check_computing(path, graph.node, graph.library.function, _STATEFUL | _CHECKPOINTS)
    _check_computing(path, (), _called_by_objects(meta), _STATEFUL)


def _check_object(path: Path, node: Any) -> None:
    """Refuse an object with functions of its own for setup, saving or restoring."""
    kind = node.WhichOneof("kind")
    if kind is not None and kind not in _OBJECTS:
        raise invalid(path, f"a SavedModel with a {kind}", _ALLOWED_OBJECTS)
    if node.registered_name not in _CLASSES:
        raise invalid(path, f"a SavedModel with a {node.registered_name}", _ALLOWED_OBJECTS)
    if node.saveable_objects or node.registered_saver:
        raise invalid(path, "a SavedModel with objects that save or restore themselves", _ALLOWED_OBJECTS)


def _called_by_objects(meta: Any) -> list[Any]:
    """Return the functions of objects, which loading may call, and all functions that they call."""
    named = set(meta.object_graph_def.concrete_functions)
    for node in meta.object_graph_def.nodes:
        named |= {*node.function.concrete_functions, node.bare_concrete_function.concrete_function_name}
    return _reached(meta.graph_def.library.function, named)


def _reached(functions: Iterable[Any], named: set[str]) -> list[Any]:
    """Return the functions with these names, and all functions that they call."""
    library = {function.signature.name: function for function in functions}
    reached: set[str] = set()
    while left := (named & library.keys()) - reached:
        reached |= left
        named = {name for caller in left for node in library[caller].node_def for name in _called(node)}
    return [library[name] for name in reached]


def _called(node: Any) -> set[str]:
    """Return the names of the functions that a node may call."""
    functions = (function for value in node.attr.values() for function in (value.func, *value.list.func))
    return {node.op, *(function.name for function in functions)}


def _check_computing(
    path: Path, nodes: Iterable[Any], functions: Collection[Any], allowed: frozenset[str]
) -> None:
    """Refuse nodes and functions that do more than compute; calls among these functions are allowed."""
    nodes = (*nodes, *(node for function in functions for node in function.node_def))
    operations = {node.op for node in nodes if not is_message(node)}
    for name in sorted(operations - {function.signature.name for function in functions} - allowed):
        known = op_def_registry.get(name)
        if known is None or known.is_stateful or name in _SIDE_EFFECTS:
            raise invalid(path, f"the operation {name}", "a graph that only computes")


def _frozen(path: Path, signature: Any) -> FrozenGraph:
    _, specs = signature.structured_input_signature
    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}
    forward = tf.function(lambda **tensors: dict(signature(**tensors)), autograph=False)
    frozen = convert_variables_to_constants_v2(forward.get_concrete_function(**named))
    outputs = dict(zip(sorted(signature.structured_outputs), frozen.outputs, strict=True))
    inputs = {tensor.op.name: tensor for tensor in frozen.inputs}
    for name, tensor in {**inputs, **outputs}.items():
        _check_sizes(path, name, tensor)
    graph = _needed(
        frozen.graph.as_graph_def(), [tensor.op.name for tensor in (*frozen.inputs, *frozen.outputs)]
    )
    meta = meta_graph_pb2.MetaGraphDef(graph_def=graph)
    _check_computing(path, graph.node, graph.library.function, frozenset({"Placeholder"}))
    described = meta.signature_def[SIGNATURE]
    for infos, tensors in ((described.inputs, inputs), (described.outputs, outputs)):
        for name, tensor in tensors.items():
            infos[name].CopyFrom(_info(tensor))
    return FrozenGraph(meta)


def _needed(graph: Any, names: list[str]) -> Any:
    """Return the subgraph for some operations, without operations that do not affect results."""
    remove_checks(graph)
    needed = extract_sub_graph(graph, names)
    called = {name for node in needed.node for name in _called(node)}
    used = [
        type(one).FromString(one.SerializeToString()) for one in _reached(needed.library.function, called)
    ]
    del needed.library.function[:]
    needed.library.function.extend(used)
    return needed


def _info(tensor: Any) -> Any:
    return meta_graph_pb2.TensorInfo(
        name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto()
    )


def _check_sizes(path: Path, name: str, tensor: Any) -> None:
    sizes = tensor.shape.as_list() if tensor.shape.rank else []
    if not sizes or sizes[0] is not None or None in sizes[1:]:
        shape = tensor.shape.as_list() if tensor.shape.rank is not None else "unknown"
        raise invalid(
            path, f"{name} of shape {shape}", "[None, sizes...]: a free batch dimension and known sizes",
            "save it with such an input_signature",
        )  # fmt: skip
