import time
from collections.abc import Callable

import pytest

DEADLINE = 60.0


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    """Return a function that waits, without an event loop, until a condition holds."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    return wait
