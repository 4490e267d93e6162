"""The progress of a preparation as reported by an algorithm, and its finished parts."""

__all__ = ["PreparationProgress"]


class PreparationProgress:
    """The progress of `AdaptationExecutor.prepare`, and its finished parts.

    A caller can display the progress, and pass the parts to another executor to resume an interrupted
    preparation. This class keeps them in memory.

    Attributes:
        step: The last reported step.
    """

    def __init__(self) -> None:
        self.step = 0
        self._parts: dict[str, bytes] = {}

    def report(self, step: int, total: int, loss: float | None = None) -> None:
        """Report the number of finished steps.

        Args:
            step: Number of training steps, including earlier attempts; if nothing is trained, the number of
                steps with the same duration.
            total: The value of `step` at the end.
            loss: Mean training loss since the last report; None if nothing is trained.
        """
        self.step = step

    def part(self, name: str) -> bytes:
        """Return the last version of a part, including those of earlier attempts; empty if there is none."""
        return self._parts.get(name, b"")

    def keep(self, name: str, content: bytes) -> None:
        """Keep a part; it replaces an earlier part with the same name.

        Args:
            name: Letters, digits and hyphens.
            content: Everything that is needed to resume.
        """
        self._parts[name] = content
