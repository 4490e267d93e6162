"""Searches for jobs as people write them."""

from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.jobs import JobSearch

#: Maximum length of a search.
MOST_SEARCHED: Final = 200

_TAG: Final = "tag:"


def search_of(text: str, *, removed: bool = False) -> JobSearch:
    """Return the search for words with `tag:` before a tag, and for the rest of a text as it is.

    Args:
        text: The search, such as `resnet tag:team=vision`; empty for all jobs.
        removed: Whether to search the removed jobs instead of the others.

    Raises:
        MistifyError: INVALID_CONFIG, the text is longer than `MOST_SEARCHED`.
    """
    if len(text) > MOST_SEARCHED:
        raise MistifyError(
            ErrorCode.INVALID_CONFIG,
            f"got {len(text):,} characters to search for; expected up to {MOST_SEARCHED}; shorten them",
        )
    words = text.split(" ")
    tags = tuple(word[len(_TAG) :] for word in words if word.lower().startswith(_TAG) and word[len(_TAG) :])
    others = " ".join(word for word in words if not word.lower().startswith(_TAG))
    return JobSearch(others.strip() if tags else text, tags, removed)
