"""The number of random examples of a test: few that stay the same, or many new ones in `make test-slow`."""

from typing import Final

import pytest
from hypothesis import HealthCheck, settings

_COMMON: Final = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)

FEW: Final = settings(_COMMON, max_examples=25, derandomize=True, database=None)
MANY: Final = settings(_COMMON, max_examples=3_000, print_blob=True)

#: For tests with a parameter `effort`, which decorates the check of one example.
with_effort: Final = pytest.mark.parametrize("effort", [FEW, MANY], ids=["few", "many"])
