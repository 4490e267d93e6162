"""Token ids from a vocabulary."""

import pytest

from mistify.config.data.dataset import TextSettings
from mistify.tokenizer import Tokenizer


@pytest.fixture
def tokenizer(tmp_path):
    def make(content):
        (tmp_path / "vocab.txt").write_bytes(content.encode())
        return Tokenizer(TextSettings(vocabulary=str(tmp_path / "vocab.txt")))

    return make


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "token", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r", ""]
)
def test_only_a_line_feed_ends_a_line_of_a_vocabulary(tokenizer, token, end):
    ids = tokenizer(end.join(["[UNK]", f"a{token}b", "jazz", ""]))
    assert (ids.word("jazz"), ids.word("rock")) == (2, 0)


def test_words_of_more_than_a_hundred_characters_are_unknown(tokenizer):
    ids = tokenizer("[PAD]\n[UNK]\na\n##a\njazz\n")
    assert ids.text("a" * 100, 200) == [2, *[3] * 99]
    assert ids.text("a" * 101 + " jazz", 200) == [1, 4]
    assert ids.word("a" * 101) == 1
