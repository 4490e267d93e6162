"""One layer in the cost model, and the operators that it runs in LiteRT (paper section 4.1)."""

from dataclasses import dataclass

from mistify.costs.operators import WEIGHTED, Operation, is_float_only

FLOAT_BYTES = 4


@dataclass(frozen=True)
class LayerCost:
    """One layer in the cost model.

    Attributes:
        multiply_adds: Multiply-adds of one inference at batch 1.
        params: Weights as trained, batch normalisation included.
        stored_params: Weights as packaged, with batch normalisation folded.
        inputs: Tensors read, by index.
        output: Tensor written, by index.
        in_place: Whether the output needs no memory of its own (an activation fused into the layer
            before it, a reshape).
        stored_biases: Number of stored weights in biases and other vectors.
        operations: The operators of the layer in LiteRT.
        operators: Number of operators in the file, if there are more than operations, as for the unrolled
            steps of a recurrent layer.
    """

    name: str
    multiply_adds: int
    params: int
    stored_params: int
    inputs: tuple[int, ...]
    output: int
    in_place: bool = False
    stored_biases: int = 0
    operations: tuple[Operation, ...] = ()
    operators: int = 1

    @property
    def stored_kernel(self) -> int:
        """The stored weights that are not biases."""
        return self.stored_params - self.stored_biases

    @property
    def is_float_only(self) -> bool:
        """Whether the operator with the kernel computes in float32 at every precision."""
        return any(each.kind in WEIGHTED and is_float_only(each) for each in self.operations)
