"""Text as token ids: through a vocabulary, or by hashing."""

import re
from functools import cached_property
from pathlib import Path
from typing import Final
from zlib import crc32

from mistify.config.data.dataset import TextSettings

_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_UNKNOWN: Final = ("[UNK]", "<unk>", "<UNK>")
_FIRST: Final = ("[CLS]", "<s>")
_LAST: Final = ("[SEP]", "</s>")

#: Begins a token that goes on with a word, in vocabularies of pieces of words.
_ONWARD: Final = "##"

#: Characters of the longest word that is cut into pieces, as in Hugging Face's BERT.
_LONGEST: Final = 100


class Tokenizer:
    """Makes ids of words and punctuation, in lower case.

    With a vocabulary of word pieces, a word becomes the longest pieces from its left, as in BERT (Devlin et
    al., 2019), and a text stands between the vocabulary's start and end tokens.
    """

    def __init__(self, settings: TextSettings) -> None:
        self._settings = settings

    def text(self, text: str, length: int) -> list[int]:
        """Return the ids of a text, at most `length` of them."""
        first, last = self._end(_FIRST), self._end(_LAST)
        words = [id_ for word in _TOKEN.findall(text.lower()) for id_ in self._pieces(word)]
        return [*first, *words[: length - len(first) - len(last)], *last]

    def word(self, word: str) -> int:
        """Return the id of one word, so that labels of words stay aligned."""
        return self._pieces(word.lower())[0]

    @cached_property
    def _ids(self) -> dict[str, int]:
        if self._settings.vocabulary is None:
            return {}
        # What else splits lines for Python, such as U+2028, may stand in a token.
        with Path(self._settings.vocabulary).open(encoding="utf-8", errors="replace", newline="\n") as lines:
            return {line.rstrip("\r\n"): number for number, line in enumerate(lines)}

    @cached_property
    def _unknown(self) -> int:
        return next((self._ids[token] for token in _UNKNOWN if token in self._ids), 0)

    def _end(self, tokens: tuple[str, ...]) -> list[int]:
        return [self._ids[token] for token in tokens if token in self._ids][:1]

    def _pieces(self, word: str) -> list[int]:
        if self._settings.hashing is not None:
            return [1 + crc32(word.encode()) % (self._settings.hashing - 1)]
        if len(word) > _LONGEST:
            return [self._unknown]
        pieces: list[int] = []
        rest = word
        while rest:
            prefix = _ONWARD if pieces else ""
            end = next((end for end in range(len(rest), 0, -1) if prefix + rest[:end] in self._ids), 0)
            if not end:
                return [self._unknown]
            pieces.append(self._ids[prefix + rest[:end]])
            rest = rest[end:]
        return pieces or [self._unknown]
