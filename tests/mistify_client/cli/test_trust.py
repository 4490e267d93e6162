"""The command `mistify trust`, and commands that run packages of devices which trust a server."""

import numpy as np
import pytest

from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode
from mistify.package.opened import Package
from mistify.package.signature import KeyChain
from mistify_client.runtime.trust import TRUSTED
from tests.mistify_client.cli.test_lend import BLOCKS, lend
from tests.support.signed_packages import sign_package

KEY = PrivateKey.generate()


@pytest.fixture
def trusted(tmp_path, monkeypatch):
    path = tmp_path / "settings" / "trusted"
    monkeypatch.setenv(TRUSTED, str(path))
    return path


def test_the_keys_of_a_server_are_trusted_from_then_on(mistify, service, package, trusted):
    service.fake.keys_chain = KeyChain(first=KEY.public)
    result = mistify("trust", service.address)
    assert (result.exit_code, result.stdout) == (0, f"{KEY.public}\ntrusted by {trusted}\n")
    assert trusted.read_text() == f"# {service.address}\n{KEY.public}\n"
    assert mistify("export", package, "--onnx", trusted).exit_code == ErrorCode.UNTRUSTED.exit_code
    new = PrivateKey.generate()
    service.fake.keys_chain = KeyChain(first=KEY.public).followed_by(new, KEY)
    again = mistify("trust", service.address)
    assert again.stdout.splitlines()[:2] == [f"{KEY.public} (trusted before)", new.public]
    assert trusted.read_text().splitlines() == [
        f"# {service.address}",
        KEY.public,
        f"# {service.address}",
        new.public,
    ]


def test_a_key_or_a_single_package_can_be_trusted(mistify, package, trusted):
    assert mistify("trust", KEY.public).exit_code == 0
    refused = mistify("engines", "--package", package)
    assert refused.exit_code == ErrorCode.UNTRUSTED.exit_code
    assert f"mistify trust {package}" in refused.stderr.replace("\n", " ")
    assert mistify("trust", package).exit_code == 0
    assert f"sha256:{Package.open(package).digest}" in trusted.read_text()
    assert mistify("engines", "--package", package).exit_code != ErrorCode.UNTRUSTED.exit_code


@pytest.mark.parametrize("what", ["nowhere", "ed25519:12", "sha256:"])
def test_what_cannot_be_trusted_is_refused(mistify, trusted, what):
    result = mistify("trust", what)
    assert result.exit_code == ErrorCode.INVALID_CONFIG.exit_code
    assert what in result.stderr
    assert not trusted.exists()


def test_a_package_that_is_not_trusted_is_not_lent(mistify, trusted):
    assert mistify("trust", KEY.public).exit_code == 0
    code, errors = lend("--package", BLOCKS)
    assert (code, "no signature" in errors) == (ErrorCode.UNTRUSTED.exit_code, True)


def test_a_signed_package_runs(mistify, package, trusted, tmp_path, expected):
    np.save(tmp_path / "image.npy", expected["image"][:1])
    command = ("run", package, "--input", tmp_path / "image.npy")
    assert mistify("trust", KEY.public).exit_code == 0
    assert mistify(*command).exit_code == ErrorCode.UNTRUSTED.exit_code
    sign_package(package, KEY)
    assert mistify(*command).exit_code == 0
