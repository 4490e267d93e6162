"""Stitching: blocks of a store become one network, without a converter.

`python -m mistify_client.assembly.stitching PACKAGE NETWORKS [--weights DIR] BLOCK...` stitches blocks of a
package, and writes the network to NETWORKS, and its packed weights to the directory of `mapped_weights`.
Without the latter, it runs at low priority, because the network will only be faster. Weights that are not yet
mapped take memory that the app was not meant to use, so they do not wait for other programs.
"""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ai_edge_litert.tools import flatbuffer_utils

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.block_files import BlockFiles
from mistify.package.blocks import BlockVariant
from mistify.package.opened import Package
from mistify.tflite.combining import CombinedNetwork, names_of, read_network
from mistify.wording import listed
from mistify_client.assembly.chaining import LoadedBlock
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.made_networks import MadeNetworks
from mistify_client.assembly.shipped import blocks_of, with_shipped
from mistify_client.assembly.stitched_networks import stitched_key

#: The lowest priority in Linux.
_NICE: Final = 19


def stitch(files: BlockFiles, blocks: Sequence[BlockVariant]) -> bytes:
    """Return the `.tflite` file of a chain of blocks in a store.

    It has the signatures that all blocks have in common, with the inputs of the first block and the outputs
    of the last one.

    Args:
        files: The files of the block store.
        blocks: Variants of the store, from the inputs of the network to its outputs.

    Raises:
        MistifyError: CORRUPT_PACKAGE, naming the file that is missing, damaged or not a network, or the block
            whose inputs are not the previous one's outputs.
    """
    return stitched({str(files.directory / variant.file): files.read(variant) for variant in blocks})


def stitched(blocks: Mapping[str, bytes]) -> bytes:
    """Return the `.tflite` file of blocks, as `stitch` does.

    Args:
        blocks: Name in errors -> content of the block, in order.

    Raises:
        MistifyError: CORRUPT_PACKAGE, naming the block that is not a network, or whose inputs are not the
            previous one's outputs.
    """
    parts = [_Block.read(name, content) for name, content in blocks.items()]
    whole = CombinedNetwork()
    for key in parts[0].signatures:
        if all(key in part.signatures for part in parts):
            _add_joint(whole, parts, key)
    return whole.packed()


@dataclass(frozen=True)
class _Block:
    """The network of a block, and its signatures by their keys.

    Attributes:
        name: Name of the block in errors.
        network: Returned by `read_network`.
    """

    name: str
    network: Any
    signatures: Mapping[str, Any]

    @classmethod
    def read(cls, name: str, content: bytes) -> "_Block":
        """Parse a `.tflite` file."""
        try:
            network = read_network(content)
            signatures = {one.signatureKey.decode(): one for one in network.signatureDefs}
        except Exception as error:  # raised while parsing arbitrary data
            problem = Problem(name, f"a file that is not a network ({error})", "a block", "fetch it again")
            raise MistifyError(ErrorCode.CORRUPT_PACKAGE, "a block cannot be read", [problem]) from error
        return cls(name, network, signatures)

    def graph(self, key: str) -> Any:
        """Return the graph of a signature."""
        return self.network.subgraphs[self.signatures[key].subgraphIndex]


def _add_joint(whole: CombinedNetwork, blocks: Sequence[_Block], key: str) -> None:
    """Join the graphs of one signature of all blocks, each reading the previous one's output."""
    first = blocks[0]
    tensors, operators = whole.parts_of(first.network, first.graph(key))
    inputs, outputs = names_of(first.signatures[key].inputs), names_of(first.signatures[key].outputs)
    for before, block in pairwise(blocks):
        _require_same(before, block, key)
        more, then = whole.parts_of(block.network, block.graph(key))
        block_inputs, block_outputs = (
            names_of(of) for of in (block.signatures[key].inputs, block.signatures[key].outputs)
        )
        known = dict(zip(block_inputs.values(), outputs.values(), strict=True))
        numbers = _numbers(len(tensors), len(more), known)
        tensors += [tensor for number, tensor in enumerate(more) if number not in known]
        operators += [_renumbered(operator, numbers) for operator in then]
        outputs = {name: numbers[number] for name, number in block_outputs.items()}
    whole.add(key, tensors, operators, inputs, outputs)


def _numbers(there: int, count: int, known: Mapping[int, int]) -> dict[int, int]:
    """Return the numbers of tensors in another graph; -1, for an omitted input, is kept.

    Args:
        there: Number of tensors in the other graph.
        count: Number of added tensors.
        known: Numbers of added tensors that are already in the other graph.
    """
    new = (number for number in range(count) if number not in known)
    return {-1: -1, **known, **{number: there + place for place, number in enumerate(new)}}


def _renumbered(operator: Any, numbers: Mapping[int, int]) -> Any:
    """Return an operator with its tensors renumbered."""
    changed = copy(operator)
    for field in ("inputs", "outputs", "intermediates"):
        tensors = getattr(operator, field)
        setattr(changed, field, None if tensors is None else [numbers[int(number)] for number in tensors])
    return changed


def _require_same(before: _Block, block: _Block, key: str) -> None:
    """Check that a block's inputs are the previous one's outputs."""
    written = [before.graph(key).tensors[number] for number in before.graph(key).outputs]
    read = [block.graph(key).tensors[number] for number in block.graph(key).inputs]
    if [_words(tensor) for tensor in written] != [_words(tensor) for tensor in read]:
        expected, actual = (listed([_words(tensor) for tensor in tensors]) for tensors in (written, read))
        problem = Problem(
            block.name,
            f"a block of {actual}",
            f"{expected}, as {before.name} writes",
            "take a block of the same network",
        )
        raise MistifyError(ErrorCode.CORRUPT_PACKAGE, "the blocks do not fit", [problem])


def _words(tensor: Any) -> str:
    """Format the type, shape and scale of a tensor."""
    kind = flatbuffer_utils.type_to_name(tensor.type)
    shape = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
    sizes = ", ".join(str(int(size)) for size in (() if shape is None else shape))
    quantization = tensor.quantization
    if quantization is None or quantization.scale is None or not len(quantization.scale):
        return f"{kind} [{sizes}]"
    return f"{kind} [{sizes}] of scale {quantization.scale[0]:.9g}, zero point {quantization.zeroPoint[0]}"


def main(arguments: Sequence[str]) -> None:
    """Stitch blocks of a package, and write the network to a directory."""
    parser = ArgumentParser()
    parser.add_argument("package", type=Path)
    parser.add_argument("networks", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("blocks", nargs="+")
    options = parser.parse_args(arguments)
    if options.weights is None:
        os.nice(_NICE)
    try:
        opened, networks = Package.open(options.package), MadeNetworks(options.networks)
        blocks = with_shipped(blocks_of(opened), opened).network_of(options.blocks)
        key = stitched_key(blocks)
        with BlockFiles(opened.directory) as files:
            networks.make(key, partial(stitch, files, blocks))
        if options.weights is not None and (network := networks.find(key)) is not None:
            with BlockFiles(networks.directory) as files:
                LoadedBlock(files, network, 1, Execution.COMPILED, options.weights)
    except (MistifyError, OSError) as error:
        sys.exit(" ".join(str(error).split()))


if __name__ == "__main__":
    main(sys.argv[1:])
