"""The notes on the goals of a job, without repetitions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mistify.costs.catalogue import is_host
from mistify.jobs.job import Goal
from mistify.jobs.report import hardware_of_goal
from mistify.wording import counted

#: What stands for the hardware in a note on goals for different hardware.
_THEIR_HARDWARE = "its hardware"

#: Number of goals that a note names instead of counting them.
_NAMED = 3


@dataclass(frozen=True)
class Note:
    """A note on goals.

    Attributes:
        text: For a single goal, its note; for several, a text that is true of each of them.
        problem: Whether it says why they are not met.
        goals: Their ids.
    """

    text: str
    problem: bool
    goals: Sequence[str]

    @property
    def subject(self) -> str:
        """The goals as text: their ids, or their number."""
        if len(self.goals) <= _NAMED:
            return ", ".join(self.goals)
        return counted(len(self.goals), "goal")


@dataclass
class _Alike:
    """Notes that differ only in their hardware."""

    texts: dict[str, None] = field(default_factory=dict)
    goals: list[str] = field(default_factory=list)


def numbered_notes(goals: Sequence[Goal]) -> list[Note]:
    """Return the notes on goals, those that say why a goal is not met first.

    Notes that differ only in the hardware of the goals are joined.
    """
    alike: dict[tuple[bool, str], _Alike] = {}
    for goal in goals:
        for problem, text in _notes_of(goal):
            group = alike.setdefault((problem, _without_hardware(text, goal)), _Alike())
            group.texts[text] = None
            group.goals.append(goal.id)
    notes = [
        Note(general if len(group.texts) > 1 else next(iter(group.texts)), problem, group.goals)
        for (problem, general), group in alike.items()
    ]
    return sorted(notes, key=lambda note: not note.problem)


def _notes_of(goal: Goal) -> Iterator[tuple[bool, str]]:
    if goal.reason:
        yield True, goal.reason
    for text in dict.fromkeys(filter(None, goal.note.split("; "))):
        yield False, text
    if goal.warning and not goal.state.ended:
        yield False, goal.warning


def _without_hardware(text: str, goal: Goal) -> str:
    hardware = hardware_of_goal(goal)
    if is_host(hardware):
        return text
    return " ".join(_THEIR_HARDWARE if word == hardware else word for word in text.split(" "))
