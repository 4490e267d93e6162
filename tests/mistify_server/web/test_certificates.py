"""Certificates are read again while the server runs, without questions at its terminal."""

import ssl
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from mistify.wire.listening import Certificate
from mistify_server.web.certificates import RenewedTls


def test_no_one_is_asked_for_the_password_of_a_key(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    made = trustme.CA().issue_cert("localhost")
    made.cert_chain_pems[0].write_to_path(chain)
    private = load_pem_private_key(made.private_key_pem.bytes(), None)
    key.write_bytes(
        private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(ssl.SSLError):
        RenewedTls(Certificate(chain, key))
    assert "pass phrase" not in "".join(capfd.readouterr())
