"""Devices that trust some keys run only packages that these, or keys that follow them, have signed."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mistify_client
from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import MANIFEST, NETWORK, Manifest
from mistify.package.opened import Package
from mistify.package.signature import SIGNATURE_FILE, KeyChain, PackageSignature
from mistify_client.runtime.trust import TRUSTED, Trust, require_trusted, trusted_file
from mistify_client.runtime.versions import current, install
from tests.mistify_client.conftest import Service
from tests.support.permissions import permissions_obeyed
from tests.support.signed_packages import flipped, sign_package
from tests.support.tiny_packages import IMAGE, SCORES, make_package

PINNED, OTHER = PrivateKey.generate(), PrivateKey.generate()


def trust(*keys: PrivateKey) -> Trust:
    return Trust.of([key.public for key in keys or (PINNED,)], "trusted")


def refused(use: Callable[[], object], code: ErrorCode = ErrorCode.UNTRUSTED) -> MistifyError:
    with pytest.raises(MistifyError) as caught:
        use()
    assert caught.value.code is code, caught.value
    return caught.value


@pytest.fixture
def signed(package: Path) -> Path:
    sign_package(package, PINNED)
    return package


@pytest.fixture
def trusting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let this process trust one key, and return the file with it."""
    path = tmp_path / "trusted"
    path.write_text(f"# our server\n{PINNED.public}\n")
    monkeypatch.setenv(TRUSTED, str(path))
    return path


def test_a_package_signed_by_a_trusted_key_runs(signed: Path, expected: Any) -> None:
    model = mistify_client.load(signed, trusted=[PINNED.public])
    np.testing.assert_allclose(model(expected["image"]), expected["scores"], rtol=1e-5)


def test_without_trusted_keys_every_intact_package_runs(package: Path, expected: Any) -> None:
    for key in (None, OTHER):
        if key is not None:
            sign_package(package, key)
        np.testing.assert_allclose(
            mistify_client.load(package)(expected["image"]), expected["scores"], rtol=1e-5
        )


def test_an_unsigned_package_is_refused_with_its_place_and_a_fix(package: Path) -> None:
    error = refused(lambda: mistify_client.load(package, trusted=[PINNED.public]))
    (problem,) = error.problems
    assert problem.place == str(package / SIGNATURE_FILE)
    assert problem.value == "no signature"
    assert problem.expected == f"a signature by {PINNED.public} (trusted)"
    assert f"mistify trust {package}" in problem.fix


def test_a_package_of_another_server_is_refused(package: Path) -> None:
    sign_package(package, OTHER)
    (problem,) = refused(lambda: mistify_client.load(package, trusted=[PINNED.public])).problems
    assert problem.value == f"a signature by {OTHER.public}"
    assert "mistify trust HOST:PORT" in problem.fix


def test_a_forged_signature_is_refused(signed: Path) -> None:
    """An attacker knows the public key, and can write anything but a signature by it."""
    Manifest.load(signed).model_copy(update={"note": "changed"}).save(signed)
    digest = Package.open(signed).digest
    keys = KeyChain(first=PINNED.public)
    forged = PackageSignature.of(digest, keys, OTHER)
    followed = PackageSignature.of(digest, keys.followed_by(OTHER, OTHER), OTHER)
    leading = PackageSignature.of(digest, KeyChain(first=OTHER.public).followed_by(PINNED, OTHER), OTHER)
    for signature in (forged, followed, leading):
        (signed / SIGNATURE_FILE).write_bytes(signature.content)
        (problem,) = refused(lambda: mistify_client.load(signed, trusted=[PINNED.public])).problems
        assert problem.value.startswith("a forged signature")


def test_flipped_bits_are_refused(signed: Path) -> None:
    for name in (MANIFEST, SIGNATURE_FILE):
        original = (signed / name).read_bytes()
        for content in flipped(original, step=211):
            (signed / name).write_bytes(content)
            with pytest.raises(MistifyError):
                mistify_client.load(signed, trusted=[PINNED.public])
        (signed / name).write_bytes(original)
    network = (signed / NETWORK).read_bytes()
    (signed / NETWORK).write_bytes(network[:-1] + bytes([network[-1] ^ 1]))
    refused(lambda: mistify_client.load(signed, trusted=[PINNED.public]), ErrorCode.CORRUPT_PACKAGE)


def test_a_rotated_key_is_followed_and_the_former_one_stays_valid(package: Path) -> None:
    second, third = PrivateKey.generate(), PrivateKey.generate()
    keys = KeyChain(first=PINNED.public).followed_by(second, PINNED)
    sign_package(package, third, keys.followed_by(third, second))
    for known in (PINNED, second, third):
        trust(known).check(Package.open(package))
    sign_package(package, PINNED)
    trust(PINNED, third).check(Package.open(package))
    refused(lambda: trust(third).check(Package.open(package)))


def test_a_single_package_can_be_trusted_without_a_signature(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    entry = f"sha256:{Package.open(package).digest}"
    mistify_client.load(package, trusted=[PINNED.public, entry])
    Manifest.load(package).model_copy(update={"note": "changed"}).save(package)
    refused(lambda: mistify_client.load(package, trusted=[PINNED.public, entry]))


def test_without_the_library_the_error_says_what_to_install(
    signed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric.ed25519", None)
    mistify_client.load(signed)
    error = refused(lambda: mistify_client.load(signed, trusted=[PINNED.public]), ErrorCode.UNAVAILABLE)
    assert "pip install 'mistify-porting[signatures]'" in str(error)


def test_the_file_of_the_user_applies_to_every_use(package: Path, trusting: Path) -> None:
    for use in (
        lambda: mistify_client.load(package),
        lambda: mistify_client.load_trainer(package),
        lambda: require_trusted(package),
    ):
        (problem,) = refused(use).problems
        assert str(trusting) in problem.expected
    sign_package(package, PINNED)
    mistify_client.load(package)


def test_mistakes_in_the_file_are_reported_with_their_lines(
    package: Path, trusting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusting.write_text(f"{PINNED.public} # ours\n\ned25519:123\n{PINNED.public.upper()}\n")
    error = refused(lambda: mistify_client.load(package), ErrorCode.INVALID_CONFIG)
    assert [problem.place for problem in error.problems] == [f"{trusting}:3", f"{trusting}:4"]
    trusting.write_text("# nothing\n")
    assert "remove the setting" in str(
        refused(lambda: mistify_client.load(package), ErrorCode.INVALID_CONFIG)
    )
    monkeypatch.setenv(TRUSTED, str(trusting.with_name("missing")))
    refused(lambda: mistify_client.load(package), ErrorCode.INVALID_CONFIG)
    refused(lambda: mistify_client.load(package, trusted=[]), ErrorCode.INVALID_CONFIG)


def test_a_closed_directory_of_settings_is_another_users_and_trusts_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    closed = trusted_file().parent
    closed.mkdir(mode=0)
    with permissions_obeyed():
        assert Trust.configured() is None
    assert f"{trusted_file()} cannot be read, so that no server is trusted" in caplog.text


def test_what_the_device_makes_itself_needs_no_signature(
    signed: Path, tmp_path: Path, data: Path, trusting: Path
) -> None:
    derived = make_package(tmp_path / "tuned", data / "tiny.tflite", (IMAGE,), (SCORES,))
    install(signed, derived)
    assert current(signed) != signed
    model = mistify_client.load(signed)
    assert not (current(signed) / SIGNATURE_FILE).exists()
    assert model.manifest == Manifest.load(derived)
    require_trusted(current(signed))
    (signed / SIGNATURE_FILE).unlink()
    refused(lambda: mistify_client.load(signed))
    refused(lambda: require_trusted(current(signed)))


def test_a_directory_that_looks_like_a_version_made_here_needs_the_signature_of_its_package(
    package: Path, tmp_path: Path, trusting: Path
) -> None:
    disguised = tmp_path / "theirs.state" / "versions" / "1"
    shutil.copytree(package, disguised)
    refused(lambda: mistify_client.load(disguised), ErrorCode.NOT_FOUND)
    shutil.copytree(package, tmp_path / "theirs")
    refused(lambda: mistify_client.load(disguised))
    refused(lambda: require_trusted(disguised))
    sign_package(tmp_path / "theirs", PINNED)
    assert mistify_client.load(disguised).manifest == Manifest.load(package)


def test_an_installed_version_of_another_server_does_not_run(
    signed: Path, tmp_path: Path, data: Path, trusting: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = make_package(tmp_path / "foreign", data / "tiny.tflite", (IMAGE,), (SCORES,))
    Manifest.load(foreign).model_copy(update={"goal": "foreign"}).save(foreign)
    sign_package(foreign, OTHER)
    install(signed, foreign)
    assert (current(signed) / SIGNATURE_FILE).exists()
    model = mistify_client.load(signed)
    assert model.manifest.goal == "half"
    assert f"a signature by {OTHER.public}" in caplog.text


def fetched(service: Service, cache: Path, *trusted: PrivateKey) -> mistify_client.PortedModel:
    return mistify_client.load(
        server=service.address,
        job="job-1",
        goal="half",
        cache=cache,
        trusted=[key.public for key in trusted] or None,
    )


def test_a_downloaded_package_is_checked_also_after_an_interruption(
    service: Service, signed: Path, tmp_path: Path
) -> None:
    service.serve_package(signed)
    service.fake.fetch_faults = [1, 1]
    assert fetched(service, tmp_path / "cache", PINNED).manifest.goal == "half"
    refused(lambda: fetched(service, tmp_path / "cache", OTHER))


def test_a_package_that_was_cached_before_its_server_signed_is_completed(
    service: Service, package: Path, tmp_path: Path
) -> None:
    service.serve_package(package)
    fetched(service, tmp_path / "cache")
    refused(lambda: fetched(service, tmp_path / "cache", PINNED))
    sign_package(package, PINNED)
    service.serve_package(package)
    fetched(service, tmp_path / "cache", PINNED)


def test_the_signature_of_an_earlier_package_does_not_stay(
    service: Service, signed: Path, tmp_path: Path
) -> None:
    service.serve_package(signed)
    fetched(service, tmp_path / "cache")
    later = shutil.copytree(signed, tmp_path / "later")
    Manifest.load(later).model_copy(update={"note": "a later one"}).save(later)
    service.serve_package(later)
    (tmp_path / "cache" / "job-1" / "half" / NETWORK).unlink()
    assert fetched(service, tmp_path / "cache").manifest.note == "a later one"
