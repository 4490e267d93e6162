"""The servers whose packages a device runs: their signing keys, and single packages by their digests."""

import logging
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError, Problem, invalid_config
from mistify.files.places import config_directory
from mistify.files.writing import write_text
from mistify.package.opened import Package
from mistify.package.signature import SIGNATURE_FILE
from mistify_client.files import read_text
from mistify_client.runtime.versions import is_version, shipped_of

#: The environment variable with the path of the file of trusted keys, in place of the user's own file.
TRUSTED: Final = "MISTIFY_TRUSTED"

#: A key as servers show it, or the SHA-256 of a package's manifest.
_ENTRY: Final = re.compile(r"(ed25519|sha256):[0-9a-f]{64}")

EXPECTED: Final = '"ed25519:" or "sha256:" and 64 hexadecimal digits'
FIX: Final = "copy a key from mistify-server signing-keys list, or run mistify trust"

_KEY: Final = "ed25519:"

_COMMENT: Final = "#"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trust:
    """The signing keys and the packages that a device accepts.

    Attributes:
        entries: Signing keys as `ed25519:...`, and SHA-256 of the manifests of single packages as
            `sha256:...`.
        source: Where they are set, for error messages.
    """

    entries: frozenset[str]
    source: str

    @classmethod
    def of(cls, entries: Iterable[str], source: str) -> "Trust":
        """Return the trust in entries.

        Raises:
            MistifyError: INVALID_CONFIG, there are none, or some are invalid.
        """
        if isinstance(entries, str):
            entries = (entries,)
        return cls._checked(((f"{source}[{index}]", entry) for index, entry in enumerate(entries)), source)

    @classmethod
    def configured(cls) -> "Trust | None":
        """Return what this user trusts; None without a file, which leaves every package usable.

        Raises:
            MistifyError: INVALID_CONFIG, the file cannot be read, has no entries, or invalid ones.
        """
        path = trusted_file()
        if not os.environ.get(TRUSTED) and not _exists(path):
            return None
        lines = (line.partition(_COMMENT)[0].strip() for line in read_text(path).splitlines())
        entries = ((f"{path}:{number}", entry) for number, entry in enumerate(lines, start=1) if entry)
        return cls._checked(entries, str(path))

    @classmethod
    def _checked(cls, entries: Iterable[tuple[str, str]], source: str) -> "Trust":
        """Return the trust in entries, each with its place."""
        entries = tuple(entries)
        problems = [
            Problem(place, repr(entry), EXPECTED, FIX) for place, entry in entries if not is_entry(entry)
        ]
        if not entries:
            fix = "add one, or remove the setting to run packages of every server"
            problems = [Problem(source, "nothing", EXPECTED, fix)]
        if problems:
            raise invalid_config(problems, "what is trusted")
        return cls(frozenset(entry for _, entry in entries), source)

    def check(self, package: Package) -> None:
        """Check that a package is one that is trusted, or signed by a trusted key or by its successor.

        The digests of its files are checked when they are read.

        Raises:
            MistifyError: UNTRUSTED, it is not; UNAVAILABLE, the library for signatures is not installed.
        """
        signature = package.signature
        if f"sha256:{package.digest}" in self.entries:
            return
        if signature is None:
            fix = f"fetch it from a server that signs, or trust it alone: mistify trust {package.directory}"
            raise self._untrusted(package, "no signature", fix)
        if self.entries.isdisjoint(signature.keys.keys):
            fix = "do not run it, or trust its server: mistify trust HOST:PORT"
            raise self._untrusted(package, f"a signature by {signature.keys.current}", fix)
        if not signature.is_valid():
            fix = "fetch the package again, and do not run this one"
            raise self._untrusted(package, f"a forged signature, not by {signature.keys.current}", fix)

    def _untrusted(self, package: Package, value: str, fix: str) -> MistifyError:
        keys = " or ".join(sorted(entry for entry in self.entries if entry.startswith(_KEY)))
        expected = f"a signature by {keys or 'the key of a server'} ({self.source})"
        problem = Problem(str(package.directory / SIGNATURE_FILE), value, expected, fix)
        message = f"the package {package.directory} is not from a trusted server"
        return MistifyError(ErrorCode.UNTRUSTED, message, [problem])


def is_entry(text: object) -> bool:
    """Check whether a text can be trusted: whether it is a key or a digest."""
    return isinstance(text, str) and _ENTRY.fullmatch(text) is not None


def looks_like_entry(text: str) -> bool:
    """Check whether a text begins like an entry, so that a mistyped one is not taken for an address."""
    return text.partition(":")[0] in ("ed25519", "sha256")


def trusted_file() -> Path:
    """Return the path of the file with what this user trusts, which need not exist."""
    return Path(os.environ.get(TRUSTED) or config_directory() / "trusted")


def _exists(path: Path) -> bool:
    """Check whether a file exists; a directory that this process may not search belongs to another user."""
    try:
        return path.exists()
    except PermissionError:
        logger.warning("%s cannot be read, so that no server is trusted; set %s", path, TRUSTED)
        return False


def check_trusted(package: Package, trust: Trust | None) -> None:
    """Check a version of a package that was checked, unless this device has made it, which does not sign.

    Args:
        trust: None to accept every package.

    Raises:
        MistifyError: UNTRUSTED, it is neither trusted itself nor signed by a trusted key; UNAVAILABLE, the
            library for signatures is not installed.
    """
    if trust is not None and not _is_made_here(package):
        trust.check(package)


def check_named(package: Package, trust: Trust | None) -> None:
    """Check a package that a user names; for a version that this device has made, the one it was made of.

    Args:
        trust: None to accept every package.

    Raises:
        MistifyError: UNTRUSTED, it is neither trusted itself nor signed by a trusted key; UNAVAILABLE, the
            library for signatures is not installed; NOT_FOUND, STORE_VERSION or CORRUPT_PACKAGE, the package
            that it was made of is gone, was replaced by one of a newer version of Mistify, or is damaged.
    """
    if trust is not None:
        trust.check(Package.open(shipped_of(package.directory)) if _is_made_here(package) else package)


def require_trusted(directory: Path, trust: Trust | None = None) -> None:
    """Check the package in a directory, as `check_named` does.

    Args:
        trust: None for `Trust.configured`.

    Raises:
        MistifyError: UNTRUSTED, it is neither trusted itself nor signed by a trusted key; UNAVAILABLE, the
            library for signatures is not installed; INVALID_CONFIG, the file with what this user trusts
            cannot be used; NOT_FOUND, there is no package; STORE_VERSION, a newer version of Mistify wrote
            it; CORRUPT_PACKAGE, its manifest or its signature is damaged.
    """
    trust = trust or Trust.configured()
    if trust is not None:
        check_named(Package.open(directory), trust)


def add_trusted(entries: Collection[str], comment: str) -> tuple[str, ...]:
    """Add entries to the file with what this user trusts, and return those that were not in it.

    Args:
        comment: A line before the entries, which says what they are.

    Raises:
        MistifyError: INVALID_CONFIG, the file cannot be read, or has invalid entries, or comments alone.
        OSError: The file cannot be written.
    """
    path = trusted_file()
    text = read_text(path) if path.exists() else ""
    trusted = Trust.configured() if text.strip() else None
    added = tuple(entry for entry in entries if trusted is None or entry not in trusted.entries)
    if added:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "\n".join([*text.splitlines(), f"{_COMMENT} {comment}", *added, ""]), durable=True)
    return added


def _is_made_here(package: Package) -> bool:
    return package.signature is None and is_version(package.directory)
