"""Sparsity and clusters of a packaged network's kernels: the request, and axes for the result."""

from typing import Final

from pydantic import Field, model_validator

from mistify.parsing.validation import InvalidValue, Settings

#: What is measured of a package whose goal asks for compression, by axis of its achieved costs: the share of
#: the weights in its kernels that are zero, the most different values in a kernel as it is stored, and the
#: bytes of the network zipped by gzip.
ZEROS: Final = "zero_share"
VALUES: Final = "kernel_values"
GZIP: Final = "gzip_bytes"

COMPRESSION_AXES: Final = (ZEROS, VALUES, GZIP)


class CompressionConfig(Settings):
    """The `compression` of a config: either of the two.

    Neither makes the file smaller or an inference faster; only the zipped download shrinks.

    Attributes:
        sparsity: Share of each kernel's weights that become zero.
        clusters: Number of different values that each kernel is left with.
    """

    sparsity: float | None = Field(
        default=None, gt=0, lt=1, description="a share above 0 and below 1", examples=[0.5]
    )
    clusters: int | None = Field(
        default=None, ge=2, le=256, description="a number of values, 2 to 256", examples=[16]
    )

    @model_validator(mode="after")
    def _one_way(self) -> "CompressionConfig":
        if (self.sparsity is None) == (self.clusters is None):
            raise InvalidValue(
                self.model_dump(exclude_none=True),
                'either "sparsity" or "clusters"',
                'for example {"sparsity": 0.5}',
            )
        return self

    def __str__(self) -> str:
        return f"{self.sparsity:.0%} zeros" if self.clusters is None else f"{self.clusters} clusters"
