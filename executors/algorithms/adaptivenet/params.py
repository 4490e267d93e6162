"""AdaptiveNet's settings, defined without TensorFlow."""

from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field

from executors.pruning.params import IterativePruningParams
from mistify.parsing.validation import InvalidValue
from mistify.plugins import plug_ins

#: The entry-point group of plug-ins that make variants of blocks.
VARIANTS: Final = "mistify.variants"


def _different(amounts: tuple[float, ...]) -> tuple[float, ...]:
    if len({f"{amount:g}" for amount in amounts}) < len(amounts):
        raise InvalidValue(amounts, "each number once", "remove the duplicates")
    return amounts


def _maker(name: str) -> str:
    known = plug_ins(VARIANTS)
    if name in ("merge", "shrink"):
        raise InvalidValue(name, "the name of a plug-in", f'use the setting "{name}" instead')
    if name not in known:
        expected = f"the name of a plug-in: {', '.join(known)}"
        raise InvalidValue(name, expected, f"install the plug-in with the entry point {VARIANTS}: {name}")
    return name


#: The name of a plug-in that makes variants, and its amounts.
Maker: TypeAlias = Annotated[str, AfterValidator(_maker)]
Amounts: TypeAlias = Annotated[
    tuple[Annotated[float, Field(allow_inf_nan=False)], ...], AfterValidator(_different)
]


class AdaptiveNetParams(IterativePruningParams):
    """The settings of AdaptiveNet.

    Attributes:
        largest: The largest share of the network's parameters and multiply-adds that a divisible block may
            have.
        merge: Numbers of consecutive blocks that one block replaces.
        shrink: Shares of channels that remain inside a block, or between blocks if one of them has none
            inside.
        variants: Further replacements of blocks: the name of each plug-in (`mistify.variants`), with its
            amounts.
        distil_steps: Training steps in which variants learn to reproduce the blocks that they replace.
        path_steps: Training steps on randomly drawn subnets, after distillation.
        blocks: Whether packages also contain the blocks, so that devices can assemble subnets of their own.
        adapt_steps: The maximum number of steps for cutting the cheapest subnet when it exceeds the limits.
        tune_steps: Additional steps that tune the network of one goal.
    """

    largest: float = Field(default=0.1, gt=0, le=1)
    merge: Annotated[tuple[Annotated[int, Field(ge=2)], ...], AfterValidator(_different)] = (2, 3)
    shrink: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], AfterValidator(_different)] = (
        0.5,
        0.25,
    )
    variants: dict[Maker, Amounts] = Field(
        default={}, description="numbers by the names of plug-ins", examples=[{"factored": [0.5]}]
    )
    distil_steps: int = Field(default=600, ge=0)
    path_steps: int = Field(default=2400, ge=0)
    blocks: bool = False
    tune_steps: int = Field(default=0, ge=0)
