"""The blocks of a supernet in the form that packages contain (AdaptiveNet 5)."""

from collections.abc import Mapping
from dataclasses import replace

import keras

from executors.algorithms.adaptivenet.space import VariantSpan
from executors.algorithms.adaptivenet.supernet import TrainedSupernet
from executors.contract.package_parts import PackageParts
from executors.structure import analyse, fold_batch_norm, model_of
from executors.structure.blocks import Block
from executors.structure.graph import Graph
from mistify.package.blocks import BlockEstimate


def supernet_parts(trained: TrainedSupernet, network: keras.Model) -> PackageParts:
    """Return the variants of a supernet as blocks, and the names of those that make up a network."""
    supernet = trained.supernet
    blocks = supernet_blocks(trained)
    unfit = "".join(f"; without {variant}" for variant in supernet.unfit)
    return PackageParts(
        blocks=blocks,
        served=[blocks[number].file for number in supernet.subnet_of(network) or ()],
        note=f"with blocks that make {supernet.space.count():,} networks{unfit}",
    )


def parts_without_blocks(largest: float) -> PackageParts:
    """Return parts without blocks, with a note of the reason.

    Args:
        largest: The maximum share of a network up to which neighbouring layers are joined to one block.
    """
    return PackageParts(
        note="without blocks: no part of this model can be replaced, because several tensors are passed on "
        "everywhere, layers must not change, or the model is too small to be divided into blocks of at most "
        f'{largest:.0%} of it ("largest")'
    )


def supernet_blocks(trained: TrainedSupernet) -> list[Block]:
    """Return the variants of a supernet as blocks, the source's own blocks first.

    Tensors at a position have the names that they have in the source's block.
    """
    supernet, names = trained.supernet, {0: ""}
    flops, blocks = supernet.multiply_adds(), []
    for number, place in enumerate(supernet.space.places):
        graph = analyse(fold_batch_norm(model_of(supernet.graph_of(number)))).graph
        names.setdefault(place.end, graph.nodes[-1].name)
        estimate = BlockEstimate(flops=flops[number], loss=trained.losses[number])
        blocks.append(Block(place.name, place.start, place.span, _named(graph, place, names), estimate))
    return blocks


def _named(graph: Graph, place: VariantSpan, names: Mapping[int, str]) -> keras.Model:
    """Return the model of a variant, with its input and output named after their positions."""
    inputs = graph.inputs if place.start == 0 else dict.fromkeys(graph.inputs, names[place.start])
    nodes = tuple(
        replace(node, name=names[place.end]) if (node.output,) == graph.outputs else node
        for node in graph.nodes
    )
    return model_of(replace(graph, name=place.name, nodes=nodes, inputs=inputs))
