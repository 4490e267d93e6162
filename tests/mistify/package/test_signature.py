"""Every changed bit of a signed package is noticed: of its manifest, of its signature, and of its files."""

import os
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from mistify.ed25519 import PrivateKey, is_signed
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import MANIFEST, NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.signature import SIGNATURE_FILE, KeyChain, KeyRotation, PackageSignature
from tests.support.signed_packages import flipped, sign_package, write_package

#: Odd, so that flips reach all eight bits of bytes.
_STEP = 7

FILES = {NETWORK: b"network", "train.tflite": b"gradients"}


@pytest.fixture
def key() -> PrivateKey:
    return PrivateKey.generate()


@pytest.fixture
def package(tmp_path: Path, key: PrivateKey) -> Path:
    write_package(tmp_path, FILES)
    sign_package(tmp_path, key)
    assert is_accepted(tmp_path)
    return tmp_path


def is_accepted(directory: Path) -> bool:
    """Return whether a package is what some server has signed."""
    try:
        package = Package.open(directory)
        package.verify()
    except MistifyError:
        return False
    assert package.signature is not None
    return package.signature.is_valid()


def accepted(path: Path) -> list[bytes]:
    """Return the contents with a flipped bit with which the package of a file is accepted."""
    original, wrong = path.read_bytes(), []
    with path.open("r+b", buffering=0) as file:  # truncating the file each time takes far longer
        for content in flipped(original, _STEP):
            os.pwrite(file.fileno(), content, 0)
            if is_accepted(path.parent):
                wrong.append(content)
        os.pwrite(file.fileno(), original, 0)
    return wrong


@pytest.mark.parametrize("name", [MANIFEST, *FILES])
def test_a_flipped_bit_of_each_file_is_noticed(package: Path, name: str) -> None:
    assert accepted(package / name) == []


def test_most_flipped_bits_of_an_unsigned_manifest_would_not_be_noticed(package: Path) -> None:
    """Without this, the test above would say nothing about signatures."""
    (package / SIGNATURE_FILE).unlink()
    path = package / MANIFEST
    original, unnoticed = path.read_bytes(), 0
    for content in flipped(original, step=307):
        path.write_bytes(content)
        try:
            Manifest.load(package)
        except (MistifyError, UnicodeDecodeError):
            continue
        unnoticed += 1
    assert unnoticed > 0


def test_a_flipped_bit_of_the_signature_is_noticed(package: Path, key: PrivateKey) -> None:
    new = PrivateKey.generate()
    sign_package(package, new, KeyChain(first=key.public).followed_by(new, key))
    assert is_accepted(package)
    assert accepted(package / SIGNATURE_FILE) == []


def test_a_damaged_manifest_is_named_without_a_key(package: Path) -> None:
    path = package / MANIFEST
    path.write_text(path.read_text().replace('"flops": 6250000.0', '"flops": 6250001.0'))
    for read in (Package.open, Manifest.load):
        with pytest.raises(MistifyError) as caught:
            read(package)
        assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
        (problem,) = caught.value.problems
        assert problem.place == str(path)
        assert SIGNATURE_FILE in problem.expected
        assert problem.fix == "fetch the package again"


def test_the_signature_is_a_standard_one_over_the_digest(package: Path, key: PrivateKey) -> None:
    signature = PackageSignature.load(package)
    assert signature is not None
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.public.removeprefix("ed25519:")))
    digest = Package.open(package).digest
    public.verify(bytes.fromhex(signature.signature), f"mistify package\n{digest}\n".encode())


def test_a_key_is_signed_by_the_one_before() -> None:
    first, second, third, other = (PrivateKey.generate() for _ in range(4))
    keys = KeyChain(first=first.public).followed_by(second, first).followed_by(third, second)
    assert keys.keys == (first.public, second.public, third.public)
    assert keys.current == third.public
    assert keys.is_valid()
    assert not KeyChain(first=first.public).followed_by(second, other).is_valid()
    assert not KeyChain(first=other.public, rotations=keys.rotations).is_valid()
    assert not KeyChain(first=first.public, rotations=keys.rotations[1:]).is_valid()


def test_the_signature_of_a_package_cannot_vouch_for_a_key() -> None:
    first, attacker = PrivateKey.generate(), PrivateKey.generate()
    digest = attacker.public.removeprefix("ed25519:")  # as if a manifest had this SHA-256
    signature = PackageSignature.of(digest, KeyChain(first=first.public), first).signature
    rotation = KeyRotation(key=attacker.public, signature=signature)
    assert not KeyChain(first=first.public, rotations=(rotation,)).is_valid()


def test_a_changed_package_is_not_signed_any_more(package: Path) -> None:
    Manifest.load(package).model_copy(update={"note": "tuned here"}).save(package)
    opened = Package.open(package)
    assert opened.manifest.note == "tuned here"
    assert opened.signature is None


def test_a_private_key_survives_as_text_and_stays_out_of_error_messages(key: PrivateKey) -> None:
    again = PrivateKey.of(key.text)
    assert again.public == key.public
    assert is_signed(b"message", again.sign(b"message"), key.public)
    assert not is_signed(b"another", again.sign(b"message"), key.public)
    assert key.text not in repr(key)


def test_without_the_library_the_error_names_what_to_install(
    package: Path, key: PrivateKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    signature = Package.open(package).signature
    assert signature is not None
    with pytest.raises(MistifyError, match=r"pip install 'mistify-porting\[signatures\]'") as caught:
        signature.is_valid()
    assert caught.value.code is ErrorCode.UNAVAILABLE
