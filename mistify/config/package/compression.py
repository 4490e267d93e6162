"""Sparsity and weight clustering of a package's kernels: the request, and axes for the result."""

from typing import Final

from pydantic import Field, model_validator

from mistify.parsing.validation import InvalidValue, Settings

#: Axes measured on a package with compression, as part of its achieved costs: the share of zero weights in
#: its kernels, the largest number of different values in a stored kernel, and the size of the network after
#: gzip in bytes.
ZEROS: Final = "zero_share"
VALUES: Final = "kernel_values"
GZIP: Final = "gzip_bytes"

COMPRESSION_AXES: Final = (ZEROS, VALUES, GZIP)


class CompressionConfig(Settings):
    """The `compression` of a config: sparsity or clusters.

    Neither makes the file smaller or inference faster; only the compressed download shrinks.

    Attributes:
        sparsity: Share of each kernel's weights that become zero.
        clusters: Number of different values left in each kernel.
    """

    sparsity: float | None = Field(
        default=None, gt=0, lt=1, description="a share above 0 and below 1", examples=[0.5]
    )
    clusters: int | None = Field(
        default=None, ge=2, le=256, description="a number of values, 2 to 256", examples=[16]
    )

    @model_validator(mode="after")
    def _check_method(self) -> "CompressionConfig":
        if (self.sparsity is None) == (self.clusters is None):
            raise InvalidValue(
                self.model_dump(exclude_none=True),
                'either "sparsity" or "clusters"',
                'for example {"sparsity": 0.5}',
            )
        return self

    def __str__(self) -> str:
        return f"{self.sparsity:.0%} zeros" if self.clusters is None else f"{self.clusters} clusters"
