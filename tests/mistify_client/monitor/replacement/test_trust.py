"""A monitor that trusts a server installs only packages that this server has signed."""

import pytest

from mistify.ed25519 import PrivateKey
from mistify_client.runtime.trust import Trust
from mistify_client.runtime.versions import current

PINNED, OTHER = PrivateKey.generate(), PrivateKey.generate()


@pytest.mark.parametrize(
    ("key", "reason"),
    [(None, "no signature"), (OTHER, f"a signature by {OTHER.public}")],
    ids=["none", "other"],
)
def test_a_package_that_is_not_of_the_server_is_rejected(site, service, package, key, reason):
    site.trust, service.fake.key = Trust.of([PINNED.public], "trusted"), key
    site.ask()
    rejected = site.until("rejected")["reason"]
    assert reason in rejected
    assert PINNED.public in rejected
    assert current(package) == package
    assert not site.state.candidate.exists()


def test_a_signed_package_is_installed_with_its_signature(site, service, package):
    site.trust, service.fake.key = Trust.of([PINNED.public], "trusted"), PINNED
    site.ask()
    site.until("probation")
    assert current(package) != package
    assert (current(package) / "signature.json").exists()
