"""The operators of LiteRT that have an equivalent in ONNX, each with the function that writes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mistify_client.exporting.builder import Argument, Builder
from mistify_client.exporting.errors import NotExportableError
from mistify_client.exporting.network import Operator
from mistify_client.exporting.shapes import Shape
from mistify_client.exporting.values import Array, Value


@dataclass(frozen=True)
class Call:
    """An operator with its inputs.

    Attributes:
        operator: The operator as it is in the network.
        arguments: Its inputs; None for those that are missing, and for shapes that depend on the batch size.
        shapes: The shapes of its outputs.
        types: NumPy's names of the types of its outputs.
    """

    operator: Operator
    arguments: Sequence[Argument | None]
    shapes: Sequence[Shape]
    types: Sequence[str]

    @property
    def kind(self) -> str:
        """LiteRT's name of the operator."""
        return self.operator.kind

    @property
    def options(self) -> Any:
        """Its attributes."""
        return self.operator.options

    @property
    def shape(self) -> Shape:
        """The shape of its first output."""
        return self.shapes[0]

    def argument(self, number: int) -> Argument:
        """Return an input.

        Raises:
            NotExportableError: It is missing, or a number that depends on the batch size.
        """
        argument = self.optional(number)
        if argument is None:
            raise NotExportableError("it computes with the batch size")
        return argument

    def optional(self, number: int) -> Argument | None:
        """Return an input; None if it is missing."""
        return self.arguments[number] if number < len(self.arguments) else None

    def constant(self, number: int) -> Array:
        """Return an input that has to be a constant.

        Raises:
            NotExportableError: It is computed.
        """
        argument = self.argument(number)
        if isinstance(argument, Value):
            raise NotExportableError(f"its input {number} is computed rather than a constant")
        return argument


Result: TypeAlias = Value | list[Value]
Handler: TypeAlias = Callable[[Builder, Call], Result]

OPERATORS: Final[dict[str, Handler]] = {}


def operator(*kinds: str) -> Callable[[Handler], Handler]:
    """Register a function that writes operators of these kinds."""

    def register(handler: Handler) -> Handler:
        OPERATORS.update(dict.fromkeys(kinds, handler))
        return handler

    return register
