"""SavedModels without Keras structure: graphs of TensorFlow operations, which can be run but not adapted.

The graph of one signature is taken out with its weights as constants, once it is known that it does nothing
but compute: whatever reads or writes files, runs Python or keeps state is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.framework import op_def_registry
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from executors.inspection import inspect_source
from executors.inspection.directories import GRAPH
from executors.inspection.errors import invalid
from executors.inspection.limits import GIB
from executors.sources.guard import limited
from executors.structure.signature import Activation, Input, Output, Signature

SIGNATURE: Final = "serving_default"

#: Memory to load a graph: so many times its files.
_COPIES: Final = 8
_LEAST_MEMORY: Final = 2 * GIB

#: Stateful operations that a SavedModel has to load its weights, to call functions, or to train.
_USUAL: Final = frozenset(
    {"VarHandleOp", "ReadVariableOp", "AssignVariableOp", "VarIsInitializedOp", "Placeholder"}
    | {"DisableCopyOnRead"}
    | {"PartitionedCall", "StatefulPartitionedCall", "If", "While", "Case", "Assert"}
    | {"SaveV2", "RestoreV2", "MergeV2Checkpoints"}
    | {"RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt"}
)

#: What the objects of a SavedModel may be; others are set up by functions of their own.
_OBJECTS: Final = frozenset(
    {"user_object", "function", "bare_concrete_function", "variable", "constant", "captured_tensor"}
)

#: Operations through which an output stays what it is, but for its shape.
_SHAPING: Final = frozenset({"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims"})
_ACTIVATIONS: Final = {"Softmax": Activation.SOFTMAX, "Sigmoid": Activation.SIGMOID}


@dataclass(frozen=True)
class FrozenGraph:
    """A graph with its weights as constants, and which of its tensors are inputs and outputs.

    Attributes:
        meta: A `MetaGraphDef` with the one signature `SIGNATURE`; every batch dimension is free.
    """

    meta: Any

    @classmethod
    def read(cls, content: bytes) -> "FrozenGraph":
        """Return the graph that `content` has written."""
        return cls(meta_graph_pb2.MetaGraphDef.FromString(content))

    @property
    def content(self) -> bytes:
        """The graph as bytes."""
        return bytes(self.meta.SerializeToString(deterministic=True))

    @property
    def inputs(self) -> list[tf.TensorSpec]:
        """Name, shape and type of each input, in the order of the names."""
        return [
            tf.TensorSpec(info.tensor_shape, tf.as_dtype(info.dtype), name)
            for name, info in sorted(self._signature.inputs.items())
        ]

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs, in their order."""
        return sorted(self._signature.outputs)

    @property
    def signature(self) -> Signature:
        """The inputs and outputs, as of a model."""
        takes = (Input(spec.name, tuple(spec.shape[1:]), spec.dtype.name) for spec in self.inputs)
        return Signature(tuple(takes), tuple(map(self._output, self.outputs)))

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Return the outputs in their order; for a function that TensorFlow traces."""
        feeds = [info.name for _, info in sorted(self._signature.inputs.items())]
        fetches = [self._signature.outputs[name].name for name in self.outputs]
        outputs = tf.graph_util.import_graph_def(
            self.meta.graph_def, dict(zip(feeds, inputs, strict=True)), fetches, name=""
        )
        return list(outputs)

    @property
    def _signature(self) -> Any:
        return self.meta.signature_def[SIGNATURE]

    def _output(self, name: str) -> Output:
        info = self._signature.outputs[name]
        shape = tuple(tf.TensorShape(info.tensor_shape)[1:])
        return Output(name, shape, self._activation(info.name.partition(":")[0]))

    def _activation(self, name: str) -> Activation:
        nodes = {node.name: node for node in self.meta.graph_def.node}
        node = nodes[name]
        while node.op in _SHAPING:
            node = nodes[node.input[0].partition(":")[0]]
        return _ACTIVATIONS.get(node.op, Activation.NONE)


def load_graph(path: Path) -> FrozenGraph:
    """Return the graph of a SavedModel's `serving_default`.

    Raises:
        MistifyError: INVALID_MODEL: it is damaged, does more than compute, or has no such signature of a free
            batch dimension and tensors of known sizes.
    """
    with limited(path, _LEAST_MEMORY):
        inspected = inspect_source(path)
        _check_operations(path)
    with limited(path, _LEAST_MEMORY + _COPIES * inspected.size):
        try:
            loaded = tf.saved_model.load(str(path))
        except Exception as error:
            raise invalid(path, f"a SavedModel that cannot be loaded ({_first_line(error)})") from error
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
            path, "a SavedModel of TensorFlow 1", "one of TensorFlow 2", "save it anew by TensorFlow 2"
        )
    meta = saved.meta_graphs[0]
    kinds = {node.WhichOneof("kind") for node in meta.object_graph_def.nodes} - _OBJECTS - {None}
    if kinds:
        raise invalid(path, f"a SavedModel with a {min(kinds)}", "weights and functions alone")
    functions = (node for function in meta.graph_def.library.function for node in function.node_def)
    known = {function.signature.name for function in meta.graph_def.library.function}
    for nodes in (meta.graph_def.node, functions):
        _refuse_more_than_computing(path, (node.op for node in nodes if node.op not in known), _USUAL)


def _refuse_more_than_computing(path: Path, operations: Iterable[str], allowed: frozenset[str]) -> None:
    for name in operations:
        known = op_def_registry.get(name)
        if name not in allowed and (known is None or known.is_stateful or name in _READING):
            raise invalid(path, f"the operation {name}", "a graph that computes, and nothing else")


#: Not marked as stateful, though what they give depends on files.
_READING: Final = frozenset({"ReadFile", "MatchingFiles", "Restore", "RestoreSlice", "PyFuncStateless"})


def _frozen(path: Path, signature: Any) -> FrozenGraph:
    _, specs = signature.structured_input_signature
    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}
    forward = tf.function(lambda **tensors: dict(signature(**tensors)), autograph=False)
    frozen = convert_variables_to_constants_v2(forward.get_concrete_function(**named))
    outputs = dict(zip(sorted(signature.structured_outputs), frozen.outputs, strict=True))
    inputs = {tensor.op.name: tensor for tensor in frozen.inputs}
    for name, tensor in {**inputs, **outputs}.items():
        _check_sizes(path, name, tensor)
    meta = meta_graph_pb2.MetaGraphDef(graph_def=frozen.graph.as_graph_def())
    _refuse_more_than_computing(path, (node.op for node in meta.graph_def.node), frozenset({"Placeholder"}))
    described = meta.signature_def[SIGNATURE]
    for infos, tensors in ((described.inputs, inputs), (described.outputs, outputs)):
        for name, tensor in tensors.items():
            infos[name].CopyFrom(_info(tensor))
    return FrozenGraph(meta)


def _info(tensor: Any) -> Any:
    return meta_graph_pb2.TensorInfo(
        name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto()
    )


def _check_sizes(path: Path, name: str, tensor: Any) -> None:
    sizes = tensor.shape.as_list() if tensor.shape.rank else []
    if not sizes or sizes[0] is not None or None in sizes[1:]:
        shape = tensor.shape.as_list() if tensor.shape.rank is not None else "unknown"
        raise invalid(
            path, f"{name} of shape {shape}", "[None, sizes...]: a free batch, and all else known",
            "save it with such an input_signature",
        )  # fmt: skip


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
