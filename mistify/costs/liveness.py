"""The peak memory of the tensors that are alive while the operators of a network run in order (paper 4.1)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """An operator that runs.

    Attributes:
        inputs: Tensors read, by number.
        output: Tensor written, by number.
        in_place: Whether the output can take the place of the first input.
        scratch: Bytes alive while it runs, besides inputs and output.
    """

    inputs: tuple[int, ...]
    output: int
    in_place: bool = False
    scratch: int = 0


def peak_bytes(
    steps: Sequence[Step], sizes: Mapping[int, int], inputs: Collection[int], outputs: Collection[int]
) -> int:
    """Return the maximum number of bytes alive at once.

    Args:
        steps: The operators in the order in which they run.
        sizes: Bytes of each tensor.
        inputs: Tensors that the network reads.
        outputs: Tensors that must stay alive until the end.
    """
    home = _homes(steps, sizes, inputs, outputs)
    last_use = {home[tensor]: len(steps) for tensor in outputs}
    for at, step in enumerate(steps):
        for tensor in (*step.inputs, step.output):
            last_use[home[tensor]] = max(last_use.get(home[tensor], 0), at)
    alive = {home[tensor] for tensor in inputs}
    peak = sum(sizes[tensor] for tensor in alive)
    for at, step in enumerate(steps):
        alive.add(home[step.output])
        peak = max(peak, sum(sizes[tensor] for tensor in alive) + step.scratch)
        alive = {tensor for tensor in alive if last_use.get(tensor, -1) > at}
    return peak


def _homes(
    steps: Sequence[Step], tensors: Collection[int], inputs: Collection[int], outputs: Collection[int]
) -> dict[int, int]:
    """Return, for each tensor, the tensor whose memory it uses: itself, or its input."""
    readers: dict[int, int] = {}
    for step in steps:
        for tensor in set(step.inputs):
            readers[tensor] = readers.get(tensor, 0) + 1
    home = {tensor: tensor for tensor in tensors}
    for step in steps:
        source = step.inputs[0] if step.inputs else step.output
        if step.in_place and readers[source] == 1 and source not in (*inputs, *outputs):
            home[step.output] = home[source]
    return home
