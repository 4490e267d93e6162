"""Signatures with Ed25519 (RFC 8032) by the library `cryptography`, which is imported when it is needed.

Clients install it only if they verify signatures. Keys and signatures are lowercase hexadecimal text, so that
each has one form only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import StringConstraints

from mistify.errors import ErrorCode, MistifyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PREFIX: Final = "ed25519:"

PublicKey = Annotated[str, StringConstraints(pattern=r"^ed25519:[0-9a-f]{64}$")]
Signature = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


class PrivateKey:
    """A key that signs.

    Args:
        key: The key of the library.

    Raises:
        MistifyError: UNAVAILABLE, the library is not installed. The same holds below.
    """

    def __init__(self, key: "Ed25519PrivateKey") -> None:
        self._key = key

    @classmethod
    def generate(cls) -> "PrivateKey":
        """Return a new key."""
        return cls(_library().Ed25519PrivateKey.generate())

    @classmethod
    def of(cls, text: str) -> "PrivateKey":
        """Return the key with a text, as `text` returns it."""
        return cls(_library().Ed25519PrivateKey.from_private_bytes(bytes.fromhex(text)))

    @property
    def text(self) -> str:
        """The 32 secret bytes of the key, in hexadecimal."""
        return self._key.private_bytes_raw().hex()

    @property
    def public(self) -> str:
        """The public key (`PublicKey`), by which others verify signatures."""
        return _PREFIX + self._key.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> str:
        """Return the signature of a message (`Signature`)."""
        return self._key.sign(message).hex()


def is_signed(message: bytes, signature: str, key: str) -> bool:
    """Check whether the owner of a `PublicKey` has made a `Signature` of a message."""
    public = _library().Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.removeprefix(_PREFIX)))
    try:
        public.verify(bytes.fromhex(signature), message)
    except import_module("cryptography.exceptions").InvalidSignature:
        return False
    return True


def _library() -> Any:
    try:
        return import_module("cryptography.hazmat.primitives.asymmetric.ed25519")
    except ImportError as error:
        raise MistifyError(
            ErrorCode.UNAVAILABLE,
            f"signatures need the library cryptography, which cannot be imported ({error}); install it with "
            "pip install 'mistify-porting[signatures]'",
        ) from error
