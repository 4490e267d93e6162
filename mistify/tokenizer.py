"""Conversion of text to token ids, by a vocabulary or by hashing."""

import re
from functools import cached_property
from pathlib import Path
from typing import Final
from zlib import crc32

from mistify.config.data.dataset import TextSettings

#: The id that fills the places behind the last token.
PADDING: Final = 0

_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_UNKNOWN: Final = ("[UNK]", "<unk>", "<UNK>")
_FIRST: Final = ("[CLS]", "<s>")
_LAST: Final = ("[SEP]", "</s>")

#: Prefix of tokens that continue a word, in word-piece vocabularies.
_ONWARD: Final = "##"

#: Maximum length of a word that is split into pieces, as in Hugging Face's BERT.
_LONGEST: Final = 100


class Tokenizer:
    """A tokenizer of words and punctuation, in lower case.

    With a word-piece vocabulary, a word is split into the longest pieces from the left, as in BERT (Devlin et
    al., 2019), and a text is enclosed by the vocabulary's start and end tokens.
    """

    def __init__(self, settings: TextSettings) -> None:
        self._settings = settings

    def text(self, text: str, length: int) -> list[int]:
        """Return the ids of a text, at most `length` of them."""
        first, last = self._end(_FIRST), self._end(_LAST)
        words = [id_ for word in _TOKEN.findall(text.lower()) for id_ in self._pieces(word)]
        return [*first, *words[: length - len(first) - len(last)], *last]

    def word(self, word: str) -> int:
        """Return the id of one word, so that labels per word stay aligned."""
        return self._pieces(word.lower())[0]

    @cached_property
    def _ids(self) -> dict[str, int]:
        if self._settings.vocabulary is None:
            return {}
        # Other line separators for Python, such as U+2028, may occur in a token.
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
