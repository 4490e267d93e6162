"""Digests of code and libraries, which results depend on."""

import hashlib
from collections.abc import Collection
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path


@lru_cache
def code_digest(packages: tuple[str, ...]) -> str:
    """Return a digest of the code of packages or modules, cached at the first request."""
    digest = hashlib.sha256()
    for package in packages:
        for file in files_of(package):
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def files_of(package: str) -> Collection[Path]:
    """Return the files with the code of a package or module, without importing it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return []
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]
