"""Pages and messages do not contain words that native speakers would not use."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.paths import REPOSITORY

#: Alternatives to these words: "fix it", "not valid TOML", "at most", "again", "in short".
_WORDS = re.compile(
    r"\bmend(s|ed|ing)?\b|\bno (TOML|JSON|CSV|UTF-8)\b|\bat the (most|least)\b|\banew\b|\bIn words\b"
    r"|\bgo(es)? on (with|by itself|where)\b|\bloads nothing\b|\btravels? by (itself|themselves)\b"
)
PAGES = sorted({*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")})
PACKAGES = ("mistify", "executors", "mistify_server", "mistify_client")


def messages(tree: ast.AST) -> Iterator[str]:
    """Yield the texts in a module that are not docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_pages_contain_none_of_these_words(page):
    assert [found[0] for found in _WORDS.finditer(page.read_text())] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_messages_contain_none_of_these_words(package):
    modules = [path for path in (REPOSITORY / package).rglob("*.py") if not path.stem.endswith("_pb2")]
    texts = [(path.name, text) for path in modules for text in messages(ast.parse(path.read_text()))]
    assert len(texts) > 1_000
    assert [(name, text) for name, text in texts if _WORDS.search(text)] == []
