"""Rules for layers, in the terms of a network's structure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from heapq import nlargest
from typing import Final

from mistify.config.layers import LayerRule
from mistify.parsing.validation import InvalidValue

#: By patterns of layers' names.
Rules = Mapping[str, LayerRule]

#: Names that are suggested in place of a pattern that matches none, at most, and how alike they are.
_SUGGESTIONS: Final = 3
_ALIKE: Final = 0.5


def rules_of(rules: Rules, layer: str) -> list[LayerRule]:
    """Return the rules that a layer obeys."""
    return [rule for pattern, rule in rules.items() if fnmatchcase(layer, pattern)]


def is_kept(rules: Rules, layer: str) -> bool:
    """Check whether a layer stays as it is."""
    return any(rule.at_least is None for rule in rules_of(rules, layer))


def least_channels(rules: Rules, layer: str) -> int:
    """Return the number of its channels that a layer has to keep, among those that can be cut."""
    return max((rule.at_least or 0 for rule in rules_of(rules, layer)), default=0)


def unmatched(rules: Rules, layers: Collection[str]) -> Iterator[InvalidValue]:
    """Yield an error for each pattern that matches no layer, with suggestions."""
    expected = "a pattern that matches the name of a layer"
    for pattern in rules:
        if not any(fnmatchcase(layer, pattern) for layer in layers):
            yield InvalidValue(pattern, expected, _suggestion(pattern, layers))


def _suggestion(pattern: str, layers: Iterable[str]) -> str:
    wanted = pattern.strip("*?").casefold()

    def likeness(layer: str) -> float:
        """A pattern may stand for the start or the end of a name."""
        parts = {layer, layer[: len(wanted)], layer[-len(wanted) :]} if wanted else {layer}
        return max(SequenceMatcher(None, wanted, part.casefold()).ratio() for part in parts)

    near = [layer for layer in nlargest(_SUGGESTIONS, layers, likeness) if likeness(layer) >= _ALIKE]
    named = near or list(layers)[:_SUGGESTIONS]
    question = "did you mean" if near else "its layers are called"
    return f"{question} {', '.join(named)}{'?' if near else ' and so on'}"
