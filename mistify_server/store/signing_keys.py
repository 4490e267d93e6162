"""The key with which a server signs its packages, in a file of its store."""

from pathlib import Path
from stat import S_IMODE
from typing import Annotated, Final, Literal

from pydantic import StringConstraints, ValidationError

from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.files.locking import locked
from mistify.files.writing import write_bytes
from mistify.package.records import Record
from mistify.package.signature import KeyChain, PackageSignature
from mistify_server.store.artifacts import writing

#: Name of the file in the directory of a store.
SIGNING_KEYS: Final = "signing-keys.json"

#: Permissions that only the owner of the file may have.
_OTHERS: Final = 0o077

_RESTORE: Final = "restore the file from a backup of the store"


class _Content(Record):
    """The content of the file: the private key in hexadecimal, and the public keys."""

    format_version: Literal[1] = 1
    private_key: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    keys: KeyChain


class SigningKeys:
    """The signing keys of a server. Other processes may change them while it runs.

    Args:
        path: The file of the keys, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def exist(self) -> bool:
        """True if the server has made its first key."""
        return self._path.exists()

    def make(self) -> bool:
        """Make the first key, unless there is one; return whether one was made.

        Raises:
            MistifyError: UNAVAILABLE, the file cannot be written.
        """
        with writing(self._path.parent), locked(self._path.parent):
            if self.exist:
                return False
            key = PrivateKey.generate()
            self._write(key, KeyChain(first=key.public))
        return True

    def public(self) -> KeyChain:
        """Return the public keys, the current one last.

        Raises:
            MistifyError: UNAVAILABLE, the file is missing or damaged, or other users can read it.
        """
        return self._read().keys

    def sign(self, manifest: str) -> bytes:
        """Return the content of the signature file of a package.

        Args:
            manifest: SHA-256 of its manifest, in hex.

        Raises:
            MistifyError: UNAVAILABLE, the file is missing or damaged, or other users can read it.
        """
        content = self._read()
        return PackageSignature.of(manifest, content.keys, PrivateKey.of(content.private_key)).content

    def rotate(self, *, stolen: bool = False) -> KeyChain:
        """Replace the current key by a new one, which it signs, and return the public keys.

        Args:
            stolen: Others may have the current key, so that its signatures say nothing: the new key is the
                only one, and clients have to be told to trust it.

        Raises:
            MistifyError: UNAVAILABLE, the file is missing or damaged, it cannot be written, or other users
                can read it.
        """
        with writing(self._path.parent), locked(self._path.parent):
            key = PrivateKey.generate()
            if stolen:
                keys = KeyChain(first=key.public)
            else:
                content = self._read()
                keys = content.keys.followed_by(key, PrivateKey.of(content.private_key))
            self._write(key, keys)
        return keys

    def copy_to(self, directory: Path) -> None:
        """Copy the file into the directory of a backup, if it exists."""
        if self.exist:
            write_bytes(directory / SIGNING_KEYS, self._path.read_bytes(), durable=True, private=True)

    def fault(self) -> str:
        """Return what is wrong with the file and how to fix it; empty if nothing is."""
        try:
            self._read()
        except MistifyError as error:
            return str(error)
        return ""

    def _read(self) -> _Content:
        try:
            with self._path.open("rb") as file:
                mode = S_IMODE(self._path.stat().st_mode)
                text = file.read()
        except OSError as error:
            raise self._unusable(error.strerror or str(error), "the keys of the server", _RESTORE) from error
        if mode & _OTHERS:
            fix = f"chmod 600 {self._path}; if they have read it: mistify-server signing-keys rotate --stolen"
            raise self._unusable(f"mode {mode:04o}", "a file that other users cannot read", fix)
        try:
            content = _Content.model_validate_json(text)
        except ValidationError:  # not its text, which may have the key in it
            raise self._unusable("a damaged file", "the keys of the server", _RESTORE) from None
        if PrivateKey.of(content.private_key).public != content.keys.current or not content.keys.is_valid():
            raise self._unusable("keys that do not fit together", "the keys of the server", _RESTORE)
        return content

    def _write(self, key: PrivateKey, keys: KeyChain) -> None:
        content = _Content(private_key=key.text, keys=keys).model_dump_json(indent=2)
        write_bytes(self._path, content.encode(), durable=True, private=True)

    def _unusable(self, value: str, expected: str, fix: str) -> MistifyError:
        problem = Problem(str(self._path), value, expected, fix)
        return MistifyError(ErrorCode.UNAVAILABLE, "packages cannot be signed", [problem])
