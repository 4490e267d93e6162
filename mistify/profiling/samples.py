"""The measured operators, of the kinds and sizes found in networks for small devices."""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from mistify.costs.operators import Operation, OperatorKind, elementwise

#: Consecutive operators, each of which reads the previous one's output.
Chain: TypeAlias = tuple[Operation, ...]

#: Size limit of operators, so that slow devices finish in time.
_MOST_MULTIPLY_ADDS: Final = 12_000_000
_MOST_WEIGHTS: Final = 600_000
_MOST_ELEMENTS: Final = 300_000

_SIDES: Final = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)


class Sampler:
    """Draws sizes, uniform on a logarithmic scale; unrounded, as in adapted networks."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def channels(self, least: int = 3, most: int = 256) -> int:
        """Draw a number of channels."""
        return round(float(np.exp(self._random.uniform(np.log(least), np.log(most)))))

    def pick(self, *choices: int) -> int:
        """Draw one of several numbers."""
        return int(self._random.choice(choices))

    def square(self, least: int = 1) -> int:
        """Draw the number of positions of an image."""
        return self.pick(*(side for side in _SIDES if side >= least)) ** 2

    def steps(self) -> int:
        """Draw the number of positions of a sequence, which is not square."""
        return self.pick(*(steps for steps in range(5, 200, 3) if round(steps**0.5) ** 2 != steps))

    def fitting(self, make: Callable[["Sampler"], Chain]) -> Chain:
        """Draw chains until all operators of one are within the size limit, and return it."""
        while True:
            chain = make(self)
            if all(map(_fits, chain)):
                return chain


def _fits(operation: Operation) -> bool:
    weights = operation.kernel * operation.c_in * operation.c_out * operation.times
    heavy = operation.kind in (OperatorKind.CONVOLUTION, OperatorKind.DENSE, OperatorKind.PRODUCT)
    return max(operation.read, operation.written) <= _MOST_ELEMENTS and (
        not heavy or (weights <= _MOST_WEIGHTS and weights * operation.positions <= _MOST_MULTIPLY_ADDS)
    )


def samples(*, integer: bool, seed: int = 0) -> Iterator[Chain]:
    """Yield the chains to measure at one precision; they are the same on every device.

    Args:
        integer: Whether networks are int8 rather than float32.
        seed: Seed for drawing sizes.
    """
    sampler = Sampler(seed)
    for make, count in _COUNTS.items():
        yield from (sampler.fitting(make) for _ in range(count))
    if integer:
        for kind in (OperatorKind.QUANTIZE, OperatorKind.DEQUANTIZE):
            yield from (
                (elementwise(kind, positions, channels),)
                for positions, channels in ((1, 1), (1, 40), (64, 10), (1024, 3), (3969, 3), (9216, 8))
            )


def _pointwise(sampler: Sampler) -> Chain:
    return (Operation(OperatorKind.CONVOLUTION, sampler.square(), sampler.channels(), sampler.channels()),)


def _convolution(sampler: Sampler) -> Chain:
    positions, kernel = sampler.square(2), sampler.pick(9, 9, 9, 25)
    return (Operation(OperatorKind.CONVOLUTION, positions, sampler.channels(), sampler.channels(), kernel),)


def _strided(sampler: Sampler) -> Chain:
    positions, kernel = sampler.square(2), sampler.pick(1, 9, 9)
    return (
        Operation(OperatorKind.CONVOLUTION, positions, sampler.channels(), sampler.channels(), kernel, 4),
    )


def _first(sampler: Sampler) -> Chain:
    positions, stride = sampler.square(12), sampler.pick(1, 4)
    c_in = sampler.pick(1, 3)
    return (Operation(OperatorKind.CONVOLUTION, positions, c_in, sampler.channels(4, 64), 9, stride),)


def _over_time(sampler: Sampler) -> Chain:
    kernel, stride = sampler.pick(1, 3, 3, 5, 5, 7), sampler.pick(1, 1, 2)
    return (
        Operation(
            OperatorKind.CONVOLUTION, sampler.steps(), sampler.channels(), sampler.channels(), kernel, stride
        ),
    )


def _depthwise(sampler: Sampler) -> Chain:
    channels, kernel, stride = sampler.channels(), sampler.pick(9, 9, 9, 25), sampler.pick(1, 1, 4)
    return (Operation(OperatorKind.DEPTHWISE, sampler.square(2), channels, channels, kernel, stride),)


def _depthwise_over_time(sampler: Sampler) -> Chain:
    channels, kernel = sampler.channels(), sampler.pick(3, 5)
    return (Operation(OperatorKind.DEPTHWISE, sampler.steps(), channels, channels, kernel),)


def _dense(sampler: Sampler) -> Chain:
    return (Operation(OperatorKind.DENSE, 1, sampler.channels(8, 3000), sampler.channels(2, 512)),)


def _dense_at_steps(sampler: Sampler) -> Chain:
    return (Operation(OperatorKind.DENSE, sampler.steps(), sampler.channels(), sampler.channels()),)


def _product(sampler: Sampler) -> Chain:
    heads = sampler.pick(1, 2, 4)
    rows = sampler.channels(4, 64)
    return (
        Operation(OperatorKind.PRODUCT, rows, sampler.channels(4, 64), sampler.channels(4, 64), times=heads),
    )


def _elementwise(kind: OperatorKind) -> Callable[[Sampler], Chain]:
    return lambda sampler: (elementwise(kind, sampler.square(), sampler.channels(1)),)


def _pool(kind: OperatorKind) -> Callable[[Sampler], Chain]:
    def make(sampler: Sampler) -> Chain:
        size, channels = sampler.pick(4, 4, 9), sampler.channels()
        return (Operation(kind, sampler.square(), channels, channels, size, 4),)

    return make


def _pool_all(sampler: Sampler) -> Chain:
    size, channels = sampler.pick(16, 36, 64, 144), sampler.channels()
    return (Operation(OperatorKind.AVERAGE_POOL, 1, channels, channels, size, size),)


def _mean(sampler: Sampler) -> Chain:
    channels = sampler.channels()
    return (Operation(OperatorKind.MEAN, 1, channels, channels, 1, sampler.square(2)),)


def _classes(sampler: Sampler) -> Chain:
    """Return the end of a network: flattening, a dense layer and a softmax."""
    positions, channels, classes = sampler.square(), sampler.channels(), sampler.channels(2, 100)
    return (
        elementwise(OperatorKind.FLATTEN, positions, channels),
        Operation(OperatorKind.DENSE, 1, positions * channels, classes),
        elementwise(OperatorKind.SOFTMAX, 1, classes),
    )


def _plain_network(sampler: Sampler) -> Chain:
    """Return convolutions, with a sum of two tensors after every other one."""
    positions, chain, channels = sampler.square(4), [], sampler.channels(4, 64)
    for number in range(6):
        after = sampler.channels(4, 64)
        chain.append(Operation(OperatorKind.CONVOLUTION, positions, channels, after, 9))
        channels = after
        if number % 2:
            chain.append(elementwise(OperatorKind.ADD, positions, channels))
    return tuple(chain)


def _pooled_network(sampler: Sampler) -> Chain:
    """Return convolutions, with a max pooling of four positions after each."""
    side, chain, channels = sampler.pick(4, 8, 16, 32), [], sampler.channels(3, 64)
    for _ in range(2):
        after = sampler.channels(4, 96)
        chain.append(Operation(OperatorKind.CONVOLUTION, side**2, channels, after, 9))
        side //= 2
        chain.append(Operation(OperatorKind.MAX_POOL, side**2, after, after, 4, 4))
        channels = after
    return tuple(chain)


def _separable_network(sampler: Sampler) -> Chain:
    """Return alternating depthwise and pointwise convolutions, from an image down to a few positions."""
    side, channels = sampler.pick(12, 24, 32, 48), sampler.channels(3, 32)
    chain = [Operation(OperatorKind.CONVOLUTION, side**2, 3, channels, 9, 4)]
    for _ in range(sampler.pick(3, 6, 9)):
        stride = sampler.pick(1, 4) if side % 2 == 0 else 1
        side //= 2 if stride == 4 else 1
        chain.append(Operation(OperatorKind.DEPTHWISE, side**2, channels, channels, 9, stride))
        after = sampler.channels(max(3, channels // 2), min(256, 3 * channels))
        chain.append(Operation(OperatorKind.CONVOLUTION, side**2, channels, after))
        channels = after
    return (*chain, Operation(OperatorKind.MEAN, 1, channels, channels, 1, side**2))


def _network_over_time(sampler: Sampler) -> Chain:
    """Return convolutions along a sequence, each between two reshapes, and then dense layers."""
    steps, kernel = sampler.steps(), sampler.pick(3, 5)
    widths = [sampler.channels(8, 96) for _ in range(4)]
    chain: list[Operation] = []
    for c_in, c_out in pairwise(widths):
        chain.append(elementwise(OperatorKind.RESHAPE, steps, c_in))
        chain.append(Operation(OperatorKind.CONVOLUTION, steps, c_in, c_out, kernel))
        chain.append(elementwise(OperatorKind.RESHAPE, steps, c_out))
    dense, classes = sampler.channels(8, 128), sampler.channels(2, 100)
    return (
        *chain,
        elementwise(OperatorKind.RESHAPE, steps, widths[-1]),
        elementwise(OperatorKind.FLATTEN, steps, widths[-1]),
        Operation(OperatorKind.DENSE, 1, steps * widths[-1], dense),
        Operation(OperatorKind.DENSE, 1, dense, classes),
        elementwise(OperatorKind.SOFTMAX, 1, classes),
    )


def _dense_network(sampler: Sampler) -> Chain:
    """Return consecutive dense layers."""
    widths = [sampler.channels(8, 512) for _ in range(5)]
    return tuple(Operation(OperatorKind.DENSE, 1, c_in, c_out) for c_in, c_out in pairwise(widths))


_COUNTS: Final = {
    _pointwise: 40,
    _convolution: 50,
    _strided: 20,
    _first: 12,
    _over_time: 30,
    _depthwise: 30,
    _depthwise_over_time: 8,
    _dense: 25,
    _dense_at_steps: 12,
    _product: 16,
    _elementwise(OperatorKind.ADD): 12,
    _elementwise(OperatorKind.ACTIVATION): 10,
    _elementwise(OperatorKind.COPY): 8,
    _elementwise(OperatorKind.SOFTMAX): 8,
    _pool(OperatorKind.MAX_POOL): 10,
    _pool(OperatorKind.AVERAGE_POOL): 6,
    _pool_all: 6,
    _mean: 10,
    _elementwise(OperatorKind.RESHAPE): 8,
    _elementwise(OperatorKind.FLATTEN): 6,
    _classes: 8,
    _plain_network: 16,
    _pooled_network: 12,
    _separable_network: 16,
    _network_over_time: 8,
    _dense_network: 6,
}
