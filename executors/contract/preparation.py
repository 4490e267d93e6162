"""The progress of preparations as algorithms report it, with the finished parts."""

__all__ = ["PreparationProgress"]


class PreparationProgress:
    """The progress of `AdaptationExecutor.prepare`, and the parts of it that are done.

    The caller may show the progress, and give the parts to another executor that resumes an interrupted
    preparation. This class keeps them in memory.

    Attributes:
        step: The last reported step.
    """

    def __init__(self) -> None:
        self.step = 0
        self._parts: dict[str, bytes] = {}

    def report(self, step: int, total: int, loss: float | None = None) -> None:
        """Report that so many steps are done.

        Args:
            step: Number of training steps, with those of earlier attempts; where nothing is trained, the
                number that takes as long.
            total: The value of `step` at the end.
            loss: Mean training loss since the last report; None where nothing is trained.
        """
        self.step = step

    def part(self, name: str) -> bytes:
        """Return the last version of a part, also from an earlier attempt; empty if there is none."""
        return self._parts.get(name, b"")

    def keep(self, name: str, content: bytes) -> None:
        """Keep a part; it replaces an earlier one of that name.

        Args:
            name: Letters, digits and hyphens.
            content: Everything needed to go on from here.
        """
        self._parts[name] = content
