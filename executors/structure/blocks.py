"""Blocks: subnetworks between two positions of a network, from which devices assemble networks."""

from dataclasses import dataclass, replace

import keras

from executors.structure.analysis import analyse
from executors.structure.composition import model_of
from executors.structure.folding import fold_batch_norm
from executors.structure.graph import Graph
from executors.structure.segments import segments
from mistify.package.blocks import BlockEstimate


@dataclass(frozen=True)
class Block:
    """A subnetwork between two positions of a network, with batch norms folded.

    Attributes:
        name: Name of its file, without the suffix.
        start: Position of its input; 0 is the whole network's inputs.
        span: Number of positions from its input to its output; at least 1.
        model: The block's network; its inputs and outputs are named after the tensors at these positions.
        estimate: Its costs and the loss that it adds; None if neither is known.
    """

    name: str
    start: int
    span: int
    model: keras.Model
    estimate: BlockEstimate | None = None

    @property
    def end(self) -> int:
        """The position of its output."""
        return self.start + self.span

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.tflite"


def blocks_of(model: keras.Model, largest: float) -> list[Block]:
    """Return the segments of a network as blocks.

    Args:
        largest: The share of parameters and multiply-adds up to which neighbouring layers are joined
            (`segments`).
    """
    parts = segments(analyse(fold_batch_norm(model)), largest)
    return [_block(f"block-{start:02d}", start, part.graph) for start, part in enumerate(parts)]


def _block(name: str, start: int, graph: Graph) -> Block:
    return Block(name, start, 1, model_of(replace(graph, name=name)))
