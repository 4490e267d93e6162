"""CrowdHMTware's settings, defined without TensorFlow."""

from typing import Final

from pydantic import Field

from executors.algorithms.adaptivenet.params import AdaptiveNetParams, Amounts, Maker

#: The operator families whose variants are worth their latency after short training, and their amounts.
FAMILIES: Final[dict[str, tuple[float, ...]]] = {
    "depth": (3.0,),
    "kernel": (1.0,),
    "low-rank": (0.5,),
    "separable": (1.0,),
}


class CrowdHmtParams(AdaptiveNetParams):
    """The settings of CrowdHMTware: those of AdaptiveNet, with variants of several operator families.

    Attributes:
        variants: Further replacements of blocks: the name of each plug-in (`mistify.variants`), with its
            amounts.
    """

    variants: dict[Maker, Amounts] = Field(
        default=FAMILIES, description="numbers by the names of plug-ins", examples=[{"ghost": [0.5]}]
    )
