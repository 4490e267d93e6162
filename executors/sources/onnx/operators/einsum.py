"""Sums of products in Einstein's notation, by products of matrices."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Final, NamedTuple

import keras

from executors.sources.onnx.batch import Array, Size
from executors.sources.onnx.builder import Builder, as_float
from executors.sources.onnx.errors import UnsupportedNodeError
from executors.sources.onnx.operators.dense import dense, product
from executors.sources.onnx.operators.selection import selected
from executors.sources.onnx.operators.shapes import reshaped_to
from executors.sources.onnx.registry import Argument, Node, constant, operator
from executors.sources.onnx.values import Value

#: Letters for the axes that an ellipsis stands for; equations have ASCII letters only.
_ELLIPSIS: Final = "αβγδεζηθ"


class _Factor(NamedTuple):
    """A factor, and the letter of each of its ONNX axes."""

    value: Value
    letters: str

    @property
    def sizes(self) -> dict[str, Size]:
        """Letter -> size of its axis; the batch is None."""
        return dict(zip(self.letters, self.value.shape, strict=True))


@operator("Einsum")
def einsum(builder: Builder, node: Node, *arguments: Argument) -> Value:
    """Build a product of two tensors, a dense layer for a constant matrix, or a sum of one tensor."""
    terms, result = _parsed(_equation(node), [_rank(argument) for argument in arguments])
    factors = [
        _diagonal(builder, _Factor(argument, term)) if isinstance(argument, Value) else (argument, term)
        for argument, term in zip(arguments, terms, strict=True)
    ]
    if any(len(set(letters)) < len(letters) for letters in (result, *(letters for _, letters in factors))):
        raise UnsupportedNodeError("takes a diagonal of a constant, or makes one")
    match factors:
        case [_Factor() as factor]:
            return _arranged(_summed(factor, result), result)
        case [_Factor() as first, _Factor() as second]:
            left = _summed(first, second.letters + result)
            right = _summed(second, left.letters + result)
            return _of_tensors(builder, left, right, result)
        case [_Factor() as factor, (other, others)] | [(other, others), _Factor() as factor]:
            name = builder.weighted(node, 1 if isinstance(arguments[0], Value) else 0)
            factor = _summed(factor, others + result)
            dense_ = partial(dense, builder, name, bias=None)
            return _with_matrix(builder, dense_, factor, (constant(other, "operand"), others), result)
    raise UnsupportedNodeError(f"has {len(arguments)} operands; expected one or two")


def _equation(node: Node) -> str:
    written = node.get("equation")
    return (written.decode() if isinstance(written, bytes) else str(written)).replace(" ", "")


def _rank(argument: Argument) -> int:
    return argument.rank if isinstance(argument, Value) else constant(argument, "operand").ndim


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of the axes of each operand and of the result, without ellipses.

    Without a result in the equation, it has the letters that occur once, in alphabetical order.
    """
    operands, arrow, result = equation.partition("->")
    terms = []
    for term, rank in zip(operands.split(","), ranks, strict=True):
        hidden = rank - len(term.replace("...", ""))
        terms.append(term.replace("...", _ELLIPSIS[len(_ELLIPSIS) - hidden :]))
    letters = "".join(terms)
    hidden_letters = "".join(letter for letter in _ELLIPSIS if letter in letters)
    if arrow:
        return terms, result.replace("...", hidden_letters)
    once = sorted(letter for letter in set(letters) - set(_ELLIPSIS) if letters.count(letter) == 1)
    return terms, hidden_letters + "".join(once)


def _diagonal(builder: Builder, factor: _Factor) -> _Factor:
    """Return a factor with a single axis for each letter: that of the entries with equal indices."""
    value, letters = factor
    letter = next((each for each in letters if letters.count(each) > 1), None)
    if letter is None:
        return factor
    first, second = letters.index(letter), letters.rindex(letter)
    if value.batch in (first, second):
        raise UnsupportedNodeError("combines the examples of a batch")
    others = [axis for axis in range(value.rank) if axis not in (first, second)]
    order = [*others, first, second]
    moved = Value(value.tensor, tuple(order.index(axis) for axis in value.axes))
    size, kept = value.size(first), [value.shape[axis] for axis in others]
    merged = reshaped_to(builder, moved, (*kept, size * value.size(second)))
    equal = selected(merged, merged.rank - 1, slice(None, None, size + 1))
    return _diagonal(builder, _Factor(equal, "".join(letters[axis] for axis in others) + letter))


def _summed(factor: _Factor, kept: str) -> _Factor:
    """Sum a factor over the axes that nothing else has."""
    value, letters = factor
    alone = [axis for axis, letter in enumerate(letters) if letter not in kept]
    if not alone:
        return factor
    if value.batch in alone:
        raise UnsupportedNodeError("combines the examples of a batch")
    left = [axis for axis in value.axes if axis not in alone]
    ranks = {axis: rank for rank, axis in enumerate(sorted(left))}
    tensor = keras.ops.sum(value.tensor, axis=tuple(value.position(axis) for axis in alone))
    summed = Value(tensor, tuple(ranks[axis] for axis in left))
    return _Factor(summed, "".join(letters[axis] for axis in sorted(left)))


def _arranged(factor: _Factor, result: str) -> Value:
    """Return a value whose axes have these letters in the order of the result; nothing moves."""
    value, letters = factor
    if set(letters) != set(result):
        raise UnsupportedNodeError("repeats entries along a new axis")
    return Value(value.tensor, tuple(result.index(letters[axis]) for axis in value.axes))


def _of_tensors(builder: Builder, left: _Factor, right: _Factor, result: str) -> Value:
    """Build the product of matrices for each entry of the axes that all have."""
    sizes = left.sizes
    if any(sizes.setdefault(letter, size) != size for letter, size in right.sizes.items()):
        raise UnsupportedNodeError("repeats entries along an axis of one operand")
    shared = [letter for letter in left.letters if letter in right.letters]
    both, inner = ([each for each in shared if (each in result) == stays] for stays in (True, False))
    rows = [letter for letter in left.letters if letter not in shared]
    columns = [letter for letter in right.letters if letter not in shared]
    batch = next(letter for letter, size in left.sizes.items() if size is None)
    if batch not in both:
        raise UnsupportedNodeError("combines the examples of a batch")
    both.sort(key=lambda letter: letter != batch)

    def as_matrices(factor: _Factor, first: Sequence[str], second: Sequence[str]) -> Value:
        moved = _arranged(factor, "".join((*both, *first, *second)))
        merged = (prod(int(sizes[letter] or 1) for letter in side) for side in (first, second))
        return reshaped_to(builder, moved, (*(sizes[letter] for letter in both), *merged))

    made = product(builder, as_matrices(left, rows, inner), as_matrices(right, inner, columns))
    return _divided(builder, made, {letter: sizes[letter] for letter in (*both, *rows, *columns)}, result)


def _with_matrix(
    builder: Builder,
    dense_: Callable[[Value, Array], Value],
    factor: _Factor,
    matrix: tuple[Array, str],
    result: str,
) -> Value:
    """Build a dense layer for a constant that is summed with axes of the value and has new ones.

    Args:
        dense_: Builds the layer from its input and its kernel.
        matrix: The constant, and the letters of its axes.
    """
    array, letters = matrix
    inner = [letter for letter in factor.letters if letter in letters]
    columns = [letter for letter in letters if letter not in factor.letters]
    if any(letter in result for letter in inner):
        raise UnsupportedNodeError("multiplies entries by constants of their own")
    if any(factor.sizes[letter] is None for letter in inner):
        raise UnsupportedNodeError("combines the examples of a batch")
    array = as_float(array).transpose([letters.index(letter) for letter in (*inner, *columns)])
    kernel = array.reshape(prod(array.shape[: len(inner)]), -1)
    rows = {letter: size for letter, size in factor.sizes.items() if letter not in inner}
    moved = _arranged(factor, "".join((*rows, *inner)))
    made = dense_(reshaped_to(builder, moved, (*rows.values(), len(kernel))), kernel)
    new = dict(zip(columns, array.shape[len(inner) :], strict=True))
    return _divided(builder, made, {**rows, **new}, result)


def _divided(builder: Builder, value: Value, sizes: Mapping[str, Size], result: str) -> Value:
    """Return a value whose merged axes are apart, in the order of the result.

    Args:
        sizes: Letter -> size of each axis, in the value's order.
    """
    return _arranged(_Factor(reshaped_to(builder, value, tuple(sizes.values())), "".join(sizes)), result)
