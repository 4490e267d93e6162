"""The settings of the policy `contextual`: criteria and their importance."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, PlainValidator, model_validator

from mistify.parsing.validation import InvalidValue, Keys, Settings, together, unknown_name
from mistify.wording import listed
from mistify_client.monitor.durations import Seconds
from mistify_client.monitor.policies.hierarchy import (
    MOST_IMPORTANT,
    MOST_INCONSISTENT,
    Comparisons,
    correction,
    priorities,
)


class Criterion(StrEnum):
    """A criterion by which options are compared."""

    ACCURACY = "accuracy"
    LATENCY = "latency"
    ENERGY = "energy"
    MEMORY = "memory"


_Figure = Annotated[float, Field(ge=1, le=MOST_IMPORTANT)]

_IMPORTANCE: Final = f"a number from 1 to {MOST_IMPORTANT}"


class Comparison(NamedTuple):
    """The importance of one criterion compared with another, less important one."""

    criterion: Criterion
    other: Criterion
    times: float

    def __str__(self) -> str:
        """Return the comparison as written in a config."""
        return f'["{self.criterion.value}", "{self.other.value}", {self.times:g}]'


def _comparison(raw: object) -> Comparison:
    """Read a comparison as written in a config."""
    if isinstance(raw, Comparison):
        return raw
    match raw:
        case [str() as one, str() as other, int() | float() as times] if 1 <= times <= MOST_IMPORTANT:
            for name in (one, other):
                if name not in list(Criterion):
                    raise InvalidValue(name, *unknown_name(name, list(Criterion)))
            return Comparison(Criterion(one), Criterion(other), times)
    expected = f"two criteria, the more important one first, and {_IMPORTANCE}"
    raise InvalidValue(raw, expected, f"for example {_EXAMPLE}")


_EXAMPLE: Final = Comparison(Criterion.ACCURACY, Criterion.ENERGY, 3)


class Importance(Settings):
    """The importance of each criterion; one without a figure does not count.

    Attributes:
        accuracy: Importance of the quality by the metric of the package.
        latency: Importance of the milliseconds of an inference.
        energy: Importance of the millijoules of an inference.
        memory: Importance of the bytes that an option occupies.
    """

    accuracy: _Figure | None = Field(default=None, description=_IMPORTANCE, examples=[5])
    latency: _Figure | None = Field(default=None, description=_IMPORTANCE, examples=[5])
    energy: _Figure | None = Field(default=None, description=_IMPORTANCE, examples=[3])
    memory: _Figure | None = Field(default=None, description=_IMPORTANCE, examples=[1])

    @property
    def figures(self) -> dict[str, float]:
        """The criteria that count, with their importance."""
        return {name: figure for name, figure in self if figure is not None}


class ContextualParams(Settings):
    """Settings of the policy `contextual`.

    Attributes:
        importance: How important each criterion is. The default is 5 for accuracy and latency, 3 for energy
            and 1 for memory.
        comparisons: Instead of `importance`, one comparison for each pair of criteria that count: the more
            important one, the other one, and how many times as important it is, from 1 to 9.
        battery: The charge that shifts importance between accuracy and energy. "sensor" reads it, "ignore"
            turns the shift off, and a share counts as the charge.
        advantage: Share of the current option's score by which another one has to be better.
        hysteresis: Share of each limit by which an option has to stay below it before a switch to it. When a
            limit is exceeded, an option with half this margin is preferred, if there is one.
        dwell: Seconds for which another option has to be better without interruption, and the current option
            has to have run, before a switch. A switch away from an option over a limit happens at once.
    """

    importance: Importance = Field(
        default_factory=lambda: Importance(accuracy=5, latency=5, energy=3, memory=1),
        description="an object with a number from 1 to 9 for each criterion",
        examples=[{"accuracy": 5, "energy": 3}],
    )
    comparisons: tuple[Annotated[Comparison, PlainValidator(_comparison)], ...] = Field(
        default=(),
        description=f"a list of comparisons such as {_EXAMPLE}",
        examples=[[["accuracy", "latency", 2], ["accuracy", "energy", 6], ["latency", "energy", 3]]],
    )
    battery: Literal["sensor", "ignore"] | Annotated[float, Field(ge=0, le=1)] = Field(
        default="sensor", description='"sensor", "ignore" or a share from 0 to 1', examples=["sensor"]
    )
    advantage: float = Field(default=0.02, ge=0, lt=1, description="a share from 0 to 1", examples=[0.02])
    hysteresis: float = Field(default=0.1, ge=0, lt=1, description="a share from 0 to 1", examples=[0.1])
    dwell: Seconds = Field(default=2.0, description='a time such as "2s"', examples=["2s"])

    @property
    def weights(self) -> Mapping[Criterion, float]:
        """Criterion -> its share, by the analytic hierarchy process; all shares add up to 1."""
        # Single figures never contradict each other: they are the eigenvector of their ratios.
        pairs = self.comparisons
        shares = priorities(self._compared, self._pairs).weights if pairs else self.importance.figures
        total = sum(shares.values())
        return {Criterion(name): share / total for name, share in shares.items()}

    @property
    def _compared(self) -> list[str]:
        """The criteria that are compared, in a fixed order."""
        named = {criterion for one in self.comparisons for criterion in (one.criterion, one.other)}
        return [criterion.value for criterion in Criterion if criterion in named]

    @property
    def _pairs(self) -> Comparisons:
        return {(one.criterion.value, one.other.value): one.times for one in self.comparisons}

    @model_validator(mode="after")
    def _check_importance(self) -> "ContextualParams":
        mistakes = list(self._contradictions() if self.comparisons else self._without_figures())
        mistakes = mistakes or list(self._inconsistent())
        if mistakes:
            raise together(type(self).__name__, mistakes)
        return self

    def _without_figures(self) -> Iterator[tuple[Keys, InvalidValue]]:
        if not self.importance.figures:
            names = listed([criterion.value for criterion in Criterion])
            expected = f"the importance of at least one of {names}"
            yield ("importance",), InvalidValue({}, expected, "for example { accuracy = 5, energy = 3 }")

    def _contradictions(self) -> Iterator[tuple[Keys, InvalidValue]]:
        """Yield comparisons that are doubled, missing, or of a single criterion."""
        if "importance" in self.model_fields_set:
            fix = "remove one of them: either figures, or comparisons of all pairs"
            yield ("comparisons",), InvalidValue("importance and comparisons", "one of the two", fix)
        seen: set[frozenset[str]] = set()
        for number, comparison in enumerate(self.comparisons):
            pair = frozenset((comparison.criterion.value, comparison.other.value))
            if comparison.criterion is comparison.other:
                yield ("comparisons", number), InvalidValue(comparison, "two criteria", "name another one")
            elif pair in seen:
                fix = "remove it, or the comparison before"
                yield ("comparisons", number), InvalidValue(comparison, "one comparison for each pair", fix)
            seen.add(pair)
        pairs = combinations(map(Criterion, self._compared), 2)
        if missing := [str(Comparison(*pair, 1)) for pair in pairs if frozenset(pair) not in seen]:
            expected = f"a comparison for each pair of {listed(self._compared)}"
            fix = f"add {listed(missing)} with your own figures, the more important one first"
            yield ("comparisons",), InvalidValue(self.comparisons, expected, fix)

    def _inconsistent(self) -> Iterator[tuple[Keys, InvalidValue]]:
        """Yield the comparison that is farthest off, if comparisons contradict each other."""
        if not self.comparisons:
            return
        criteria, pairs = self._compared, self._pairs
        ratio = priorities(criteria, pairs).inconsistency
        if ratio <= MOST_INCONSISTENT:
            return
        best = correction(criteria, pairs)
        place = list(pairs).index(best.pair)
        expected = (
            f"comparisons with a consistency ratio of at most {MOST_INCONSISTENT:g} instead of {ratio:.2g}: "
            "this one contradicts the others most"
        )
        one, other = map(Criterion, best.better)
        fix = f"write {Comparison(one, other, best.importance)}, which makes it {best.inconsistency:.2g}"
        if best.inconsistency > MOST_INCONSISTENT:
            fix += ", and correct the others as well"
        yield ("comparisons", place), InvalidValue(self.comparisons[place], expected, fix)
