"""The block store: a network in pieces, one file each; a chain of them is a network (AdaptiveNet 6)."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from mistify.costs.energy import EnergyOrigin
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import TensorInfo
from mistify.package.records import FileName, PackagedFile, Record, read_record
from mistify.package.training import OutputEncoding
from mistify.wording import counted

BLOCKS_FORMAT: Final = 3
BLOCKS: Final = "blocks.json"

Count = Annotated[int, Field(ge=1)]


class BlockEstimate(Record):
    """The cost and the loss of a block, as estimated by the server; devices choose blocks to download by it.

    Attributes:
        flops: Multiply-adds of one inference.
        loss: Increase of the validation loss if only this block replaces its part of the network.
    """

    flops: Annotated[int, Field(ge=0)]
    loss: float


class BlockVariant(Record):
    """A block: a network between two positions.

    Attributes:
        file: Name of its `.tflite`.
        start: Position of its input; 0 is the network's inputs.
        span: Number of positions from its input to its output.
        estimate: None if the server has none.
    """

    file: FileName
    content: PackagedFile
    start: Annotated[int, Field(ge=0)]
    span: Count
    estimate: BlockEstimate | None = None

    @property
    def end(self) -> int:
        """The position of its output."""
        return self.start + self.span


class NetworkEstimate(Record):
    """A network of blocks that no other one dominates, as estimated by the server.

    Loss and costs are sums over the blocks. None of them has a weight: a device chooses by its own criteria.

    Attributes:
        files: Files of its blocks, from the inputs to the outputs.
        loss: Increase of the validation loss over that of the original network.
        latency_ms: Milliseconds of one inference on the server's machine, in float32.
        energy_mj: Millijoules of one inference, in float32.
        energy_origin: The basis of the energy.
    """

    files: tuple[FileName, ...]
    loss: float
    latency_ms: Annotated[float, Field(ge=0)]
    energy_mj: Annotated[float, Field(ge=0)]
    energy_origin: EnergyOrigin


class BlockStore(Record):
    """The positions at which a network is divided, and the variants between them.

    A chain of variants from the inputs to the outputs is a network: each begins where the previous one ends.

    Attributes:
        format_version: The version of this file's format.
        inputs: The network's inputs in order.
        positions: The tensors between its inputs and outputs, in order: outputs of all variants that end
            there, inputs of all that begin there, of one type, scale and zero point.
        outputs: The network's outputs in order.
        variants: The blocks. The first block that begins at each position is one of the original network.
        kinds: Output -> the kind of its values. Outputs that are not listed are classes, before the softmax.
        served: Files of the blocks in the package's own network, in order; the network may have been tuned
            since. Empty if it is not a network of these blocks.
        front: The best networks by loss, latency, energy and size, lowest loss first; none in format 1, or if
            the algorithm lists none.
        rounding_losses: Position -> the accuracy that the package's own network loses if its tensor is
            rounded to bytes (`mistify.package.rounding`), as measured on validation data. Only positions in
            float32 at which the network is worth cutting; none in earlier formats.
    """

    format_version: Literal[1, 2, 3] = BLOCKS_FORMAT
    inputs: tuple[TensorInfo, ...]
    positions: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    variants: tuple[BlockVariant, ...]
    kinds: dict[str, OutputEncoding] = Field(default_factory=dict)
    served: tuple[FileName, ...] = ()
    front: tuple[NetworkEstimate, ...] = ()
    rounding_losses: dict[int, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _variants_fit(self) -> "BlockStore":
        files = [variant.file for variant in self.variants]
        if twice := {file for file in files if files.count(file) > 1}:
            raise ValueError(f"several variants are called {min(twice)}")
        for variant in self.variants:
            if variant.end > self.last:
                raise ValueError(f"{variant.file} ends at position {variant.end}; the last is {self.last}")
        for position in self.rounding_losses:
            if not 0 < position < self.last or self.positions[position - 1].dtype != "float32":
                what = "only tensors between blocks in float32 can be"
                raise ValueError(f"the tensor at position {position} cannot be rounded: {what}")
        networks = [("served", self.served)] if self.served else []
        networks += [(f"front[{number}]", one.files) for number, one in enumerate(self.front)]
        for name, network in networks:
            try:
                self.network_of(network)
            except MistifyError as error:
                raise ValueError(f"{name}: {error}") from error
        return self

    @property
    def last(self) -> int:
        """The position of the outputs."""
        return len(self.positions) + 1

    def tensors_at(self, position: int) -> tuple[TensorInfo, ...]:
        """Return the tensors at a position: one, except at the inputs and outputs of the network."""
        if position == 0:
            return self.inputs
        return self.outputs if position == self.last else (self.positions[position - 1],)

    def bytes_at(self, position: int) -> int:
        """Return the bytes of the tensors at a position, for one example."""
        return sum(tensor.example_bytes for tensor in self.tensors_at(position))

    def kind_of(self, output: str) -> OutputEncoding:
        """Return the kind of an output's values."""
        return self.kinds.get(output, OutputEncoding.LOGITS)

    def only(self, files: Collection[str]) -> "BlockStore":
        """Return the store restricted to some of its files."""
        variants = tuple(variant for variant in self.variants if variant.file in files)
        served = self.served if all(file in files for file in self.served) else ()
        front = tuple(one for one in self.front if all(file in files for file in one.files))
        return self.model_copy(update={"variants": variants, "served": served, "front": front})

    def network_of(self, files: Sequence[str]) -> tuple[BlockVariant, ...]:
        """Return the variants of a network.

        Args:
            files: Files of the variants, from the inputs to the outputs.

        Raises:
            MistifyError: NOT_FOUND, there is no such variant; INVALID_CONFIG, they do not form a chain.
        """
        by_file = {variant.file: variant for variant in self.variants}
        if missing := [file for file in files if file not in by_file]:
            message = f"no block {missing[0]}; there are {', '.join(by_file)}"
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        chosen = tuple(by_file[file] for file in files)
        position = 0
        for variant in chosen:
            if variant.start != position:
                raise _gap(f"{variant.file} begins at position {variant.start}", position)
            position = variant.end
        if position != self.last:
            raise _gap(f"the {counted(len(chosen), 'block')} end at position {position}", self.last)
        return chosen

    def as_file(self) -> bytes:
        """Return the content of `blocks.json`."""
        return (self.model_dump_json(indent=2) + "\n").encode()

    @classmethod
    def load(cls, directory: Path) -> "BlockStore":
        """Read the manifest of a block store, but none of its other files.

        Raises:
            MistifyError: NOT_FOUND if there is none, STORE_VERSION if a newer version of Mistify wrote it,
                CORRUPT_PACKAGE with every problem in it.
        """
        return read_record(directory, BLOCKS, cls, BLOCKS_FORMAT)


def _gap(what: str, expected: int) -> MistifyError:
    message = f"the blocks are not a network: {what}; expected {expected}; name blocks that form a chain"
    return MistifyError(ErrorCode.INVALID_CONFIG, message)
