"""Methods that wait until a test lets them go on, like those of a database that does not answer."""

import asyncio
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

#: Seconds after which a held call fails.
_DEADLINE: Final = 180.0


@dataclass
class Gate:
    """The state of a held method.

    Attributes:
        reached: Set once the method has been called.
        opened: Set when its calls may go on.
    """

    reached: threading.Event = field(default_factory=threading.Event)
    opened: threading.Event = field(default_factory=threading.Event)


@contextmanager
def held(owner: object, name: str) -> Iterator[Gate]:
    """Hold all calls of a method within the block.

    A call on an event loop, which would hold everything else as well, fails the block at its end.
    """
    method, gate, on_event_loop = getattr(owner, name), Gate(), threading.Event()

    def waiting(*arguments: Any, **options: Any) -> Any:
        if runs_on_event_loop():
            on_event_loop.set()
            gate.reached.set()
        else:
            gate.reached.set()
            assert gate.opened.wait(_DEADLINE), f"{name} was held too long"
        return method(*arguments, **options)

    setattr(owner, name, waiting)
    try:
        yield gate
    finally:
        gate.opened.set()
        setattr(owner, name, method)
    assert gate.reached.is_set(), f"{name} was not called"
    assert not on_event_loop.is_set(), f"{name} was called on the event loop"


@contextmanager
def kept_off_event_loops(owner: object, name: str) -> Iterator[None]:
    """Fail at the end of the block if a method is called on an event loop within it."""
    method, places = getattr(owner, name), set[str]()

    def noting(*arguments: Any, **options: Any) -> Any:
        if runs_on_event_loop():
            places.update(f"{each.filename}:{each.lineno}" for each in traceback.extract_stack(limit=8))
        return method(*arguments, **options)

    setattr(owner, name, noting)
    try:
        yield
    finally:
        setattr(owner, name, method)
    assert not places, f"{name} was called on the event loop: {sorted(places)}"


def runs_on_event_loop() -> bool:
    """Check whether an event loop runs this code, so that nothing else of it runs meanwhile."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
