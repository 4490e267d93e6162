"""Rules for layers, applied to a network's structure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from heapq import nlargest
from typing import Final

from mistify.config.layers import LayerRule
from mistify.parsing.validation import InvalidValue

#: Pattern of layer names -> rule.
Rules = Mapping[str, LayerRule]

#: Maximum number of names suggested for a pattern without matches, and their minimum similarity.
_SUGGESTIONS: Final = 3
_ALIKE: Final = 0.5


def rules_of(rules: Rules, layer: str) -> list[LayerRule]:
    """Return the rules that apply to a layer."""
    return [rule for pattern, rule in rules.items() if fnmatchcase(layer, pattern)]


def is_kept(rules: Rules, layer: str) -> bool:
    """Check whether a layer must stay unchanged."""
    return any(rule.at_least is None for rule in rules_of(rules, layer))


def least_channels(rules: Rules, layer: str) -> int:
    """Return the minimum number of a layer's channels, among those that can be cut."""
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
        """Compare a name, and its start and end, with the pattern."""
        parts = {layer, layer[: len(wanted)], layer[-len(wanted) :]} if wanted else {layer}
        return max(SequenceMatcher(None, wanted, part.casefold()).ratio() for part in parts)

    near = [layer for layer in nlargest(_SUGGESTIONS, layers, likeness) if likeness(layer) >= _ALIKE]
    named = near or list(layers)[:_SUGGESTIONS]
    question = "did you mean" if near else "its layers are"
    return f"{question} {', '.join(named)}{'?' if near else ' and so on'}"
