"""Devices that trust a server tune its packages only, and learn from peers with its packages only."""

import shutil

import pytest

from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import NETWORK, Manifest
from mistify.peers.membership import PackageReference
from mistify_client.runtime.trust import TRUSTED
from mistify_client.tuning.peers.models import PeerModels
from tests.support.signed_packages import sign_package

KEY = PrivateKey.generate()


@pytest.fixture
def _trusting(tmp_path, monkeypatch):
    (tmp_path / "trusted").write_text(KEY.public)
    monkeypatch.setenv(TRUSTED, str(tmp_path / "trusted"))


@pytest.mark.usefixtures("_trusting")
def test_an_unsigned_package_is_not_tuned(device):
    own = device(0)
    with pytest.raises(MistifyError, match="no signature") as caught:
        own.tune()
    assert caught.value.code is ErrorCode.UNTRUSTED
    sign_package(own.package, KEY)
    version = own.tune().version
    assert version is not None
    assert own.tune().version is not None  # continues from the version that the device has made


@pytest.mark.usefixtures("_trusting")
def test_the_package_of_a_peer_is_checked_and_downloaded_again(data, tmp_path):
    source = shutil.copytree(data / "trainable_narrow", tmp_path / "source")
    manifest, fetched = Manifest.load(source), []

    def fetch(reference, directory):
        fetched.append(reference)
        shutil.copytree(source, directory, dirs_exist_ok=True)

    reference = PackageReference(manifest.job, manifest.goal, manifest.files[NETWORK].sha256)
    packages = PeerModels(tmp_path / "packages", Manifest.load(data / "trainable"), fetch)
    for _ in range(2):
        with pytest.raises(MistifyError, match="no signature") as caught:
            packages.get(reference)
        assert caught.value.code is ErrorCode.UNTRUSTED
    sign_package(source, KEY)
    assert packages.get(reference)[0] == manifest
    assert len(fetched) == 3
