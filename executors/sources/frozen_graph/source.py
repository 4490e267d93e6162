"""A graph of TensorFlow operations as a source: it can be run and converted, but not edited."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

from executors.sources.contract import SourceModel
from executors.structure.exporting import NamedFunction
from executors.structure.signature import Activation, Input, Output, Signature

SIGNATURE: Final = "serving_default"

#: Operations that do not change an output except for its shape.
_SHAPING: Final = frozenset({"Identity", "IdentityN", "Reshape", "Squeeze", "ExpandDims"})
_ACTIVATIONS: Final = {"Softmax": Activation.SOFTMAX, "Sigmoid": Activation.SIGMOID}


@dataclass(frozen=True)
class FrozenGraph(SourceModel):
    """A graph with its weights as constants, and with designated inputs and outputs.

    Attributes:
        meta: A `MetaGraphDef` with a single signature, `SIGNATURE`; every batch dimension is free.
    """

    meta: Any

    suffix: ClassVar[str] = ".pb"

    @property
    def network(self) -> None:
        """None: a graph has no layers that could be cut."""
        return None

    def export(self) -> NamedFunction:
        """Return the function of the graph."""
        return NamedFunction(self, self.inputs, self.outputs)

    def write(self, path: Path) -> None:
        """Write the graph as a `MetaGraphDef`."""
        path.write_bytes(self.meta.SerializeToString(deterministic=True))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Load a graph written by `write`."""
        return cls(meta_graph_pb2.MetaGraphDef.FromString(path.read_bytes()))

    @property
    def inputs(self) -> list[tf.TensorSpec]:
        """Name, shape and type of each input, sorted by name."""
        return [
            tf.TensorSpec(info.tensor_shape, tf.as_dtype(info.dtype), name)
            for name, info in sorted(self._signature.inputs.items())
        ]

    @property
    def outputs(self) -> list[str]:
        """The names of the outputs, in order."""
        return sorted(self._signature.outputs)

    @property
    def signature(self) -> Signature:
        """The inputs and outputs, in the form of a model's signature."""
        takes = (Input(spec.name, tuple(spec.shape[1:]), spec.dtype.name) for spec in self.inputs)
        return Signature(tuple(takes), tuple(map(self._output, self.outputs)))

    def __call__(self, *inputs: tf.Tensor) -> list[tf.Tensor]:
        """Return the outputs in order; intended for a function that TensorFlow traces."""
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
