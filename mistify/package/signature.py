"""The signature of a package: `signature.json` next to the manifest.

The server that makes a package signs the SHA-256 of its manifest. The manifest has the sizes and digests of
all other files, so that no bit of a package can change unnoticed.
"""

import hashlib
from pathlib import Path
from typing import Final, Literal

from mistify.ed25519 import PrivateKey, PublicKey, Signature, is_signed
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.records import Record, Sha256, corrupt_package, read_content, read_record

SIGNATURE_FILE: Final = "signature.json"

SIGNATURE_FORMAT: Final = 1

_FETCH: Final = "fetch the package again"


class KeyRotation(Record):
    """A signing key that replaced another one, and the signature of the replaced key over it."""

    key: PublicKey
    signature: Signature


class KeyChain(Record):
    """The signing keys of a server: the first one, and those that replaced it, each signed by the one before.

    So a client that trusts one of them can follow to the current one.
    """

    first: PublicKey
    rotations: tuple[KeyRotation, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys, the current one last."""
        return (self.first, *(rotation.key for rotation in self.rotations))

    @property
    def current(self) -> str:
        """The key that signs."""
        return self.keys[-1]

    def is_valid(self) -> bool:
        """Check that each key but the first was signed by the one before.

        Raises:
            MistifyError: UNAVAILABLE, the library for signatures is not installed.
        """
        return all(
            is_signed(_rotation_message(rotation.key), rotation.signature, before)
            for before, rotation in zip(self.keys, self.rotations, strict=False)
        )

    def followed_by(self, key: PrivateKey, former: PrivateKey) -> "KeyChain":
        """Return the keys with another one that replaces the current one.

        Args:
            former: The current key, which signs the new one.
        """
        rotation = KeyRotation(key=key.public, signature=former.sign(_rotation_message(key.public)))
        return KeyChain(first=self.first, rotations=(*self.rotations, rotation))


class PackageSignature(Record):
    """The content of `signature.json`.

    Attributes:
        format_version: The version of this file's format.
        manifest: SHA-256 of `manifest.json`, in hex.
        keys: The keys of the server; the current one has signed.
        signature: The signature over the manifest's digest.
    """

    format_version: Literal[1] = SIGNATURE_FORMAT
    manifest: Sha256
    keys: KeyChain
    signature: Signature

    @classmethod
    def of(cls, manifest: str, keys: KeyChain, key: PrivateKey) -> "PackageSignature":
        """Sign a manifest.

        Args:
            manifest: SHA-256 of the manifest, in hex.
            key: The current one of `keys`.
        """
        return cls(manifest=manifest, keys=keys, signature=key.sign(_package_message(manifest)))

    @property
    def content(self) -> bytes:
        """The content of the file."""
        return (self.model_dump_json(indent=2) + "\n").encode()

    @classmethod
    def load(cls, directory: Path) -> "PackageSignature | None":
        """Return the signature of a package; None if it is not signed.

        Raises:
            MistifyError: CORRUPT_PACKAGE, the file is damaged; STORE_VERSION, a newer Mistify wrote it.
        """
        try:
            return read_record(directory, SIGNATURE_FILE, cls, SIGNATURE_FORMAT)
        except MistifyError as error:
            if error.code is ErrorCode.NOT_FOUND:
                return None
            raise

    def check_manifest(self, path: Path, content: bytes) -> None:
        """Check that a manifest is the signed one; this needs no key, and notices damage only.

        Args:
            path: The manifest, for error messages.

        Raises:
            MistifyError: CORRUPT_PACKAGE, it is another one.
        """
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.manifest:
            expected = f"SHA-256 {self.manifest}, as in {SIGNATURE_FILE}"
            problem = Problem(str(path), f"SHA-256 {digest}", expected, _FETCH)
            raise corrupt_package(path.parent, [problem])

    def is_valid(self) -> bool:
        """Check that the current key has signed the manifest's digest, and was itself signed by those before.

        Raises:
            MistifyError: UNAVAILABLE, the library for signatures is not installed.
        """
        message = _package_message(self.manifest)
        return self.keys.is_valid() and is_signed(message, self.signature, self.keys.current)


def read_signed(directory: Path, manifest: str) -> tuple[bytes, PackageSignature | None]:
    """Return the content of a package's manifest, and the signature of the package; None if it has none.

    The digest in the signature is checked, which notices damage. Whose signature it is remains to be checked.

    Args:
        manifest: Name of the manifest.

    Raises:
        MistifyError: NOT_FOUND, there is no package; STORE_VERSION, a newer Mistify wrote the signature;
            CORRUPT_PACKAGE, one of the files cannot be read, or the manifest is not the signed one.
    """
    content, signature = read_content(directory, manifest), PackageSignature.load(directory)
    if signature is not None:
        signature.check_manifest(directory / manifest, content)
    return content, signature


def _package_message(manifest: str) -> bytes:
    """Return the signed message for a package; it cannot be mistaken for that of a key."""
    return f"mistify package\n{manifest}\n".encode()


def _rotation_message(key: str) -> bytes:
    return f"mistify signing key\n{key}\n".encode()
