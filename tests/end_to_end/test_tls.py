"""TLS between servers and clients: accepted and refused certificates."""

import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme

from mistify.errors import ErrorCode
from tests.support.servers import MISTIFY, last_word, server


def certified(directory: Path, name: str) -> tuple[str | Path, ...]:
    """Return server options with a certificate for `name`; write `authority.pem` to the same directory."""
    directory.mkdir(exist_ok=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "authority.pem"))
    certificate = authority.issue_cert(name)
    certificate.private_key_pem.write_to_path(str(directory / "key.pem"))
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    (directory / "chain.pem").write_bytes(chain)
    return "--tls-certificate", directory / "chain.pem", "--tls-key", directory / "key.pem"


def devices(address: str, authority: Path | None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `mistify devices` as a client that trusts this authority, or by default the public ones."""
    trusted = [] if authority is None else ["--ca", str(authority)]
    command = [MISTIFY, "devices", "--server", address, *trusted]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environ}, check=False)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    base = tmp_path_factory.mktemp("tls")
    with server(base / "store", *certified(base / "own", "127.0.0.1")) as (listening, _):
        yield listening, base / "own" / "authority.pem"


def test_clients_that_trust_the_authority_are_served(address: tuple[str, Path]) -> None:
    listening, authority = address
    assert listening.startswith("tls://127.0.0.1:")
    for done in (devices(listening, authority), devices(listening, None, MISTIFY_CA=str(authority))):
        assert done.returncode == 0, done.stderr
        assert "device" in done.stdout


def test_the_error_for_a_missing_tls_scheme_names_the_full_address(address: tuple[str, Path]) -> None:
    listening, authority = address
    done = devices(listening.removeprefix("tls://"), authority)
    assert done.returncode == ErrorCode.INVALID_CONFIG.exit_code
    assert f"write {listening}" in done.stderr.replace("\n", " ")


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_the_error_names_a_file_without_a_certificate(
    address: tuple[str, Path], tmp_path: Path, content: str | None
) -> None:
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_text(content)
    done = devices(address[0], path)
    assert done.returncode == ErrorCode.INVALID_CONFIG.exit_code
    assert f"--ca {path}" in done.stderr


def test_a_server_with_an_unknown_authority_is_not_trusted(address: tuple[str, Path], tmp_path: Path) -> None:
    listening, _ = address
    certified(tmp_path / "other", "127.0.0.1")
    for authority in (None, tmp_path / "other" / "authority.pem"):
        done = devices(listening, authority)
        assert done.returncode == ErrorCode.UNAUTHENTICATED.exit_code
        assert "--ca FILE" in done.stderr


def test_a_server_with_another_host_name_is_not_trusted(tmp_path: Path) -> None:
    options = certified(tmp_path / "own", "mistify.example")
    with server(tmp_path / "store", *options) as (listening, _):
        done = devices(listening, tmp_path / "own" / "authority.pem")
    assert done.returncode == ErrorCode.UNAUTHENTICATED.exit_code


def test_a_renewed_certificate_needs_no_restart(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    options = (*certified(own, "127.0.0.1"), "--http", "127.0.0.1:0")
    certified(other, "127.0.0.1")
    with server(tmp_path / "store", *options) as (listening, process):
        url = last_word(process)

        def served(authority: Path) -> tuple[bool, bool]:
            """Return whether gRPC and HTTP prove their identity to clients that trust an authority."""
            try:
                context = ssl.create_default_context(cafile=str(authority))
                over_http = httpx.get(f"{url}healthz", verify=context).status_code == 200
            except httpx.ConnectError:
                over_http = False
            return devices(listening, authority).returncode == 0, over_http

        assert served(own / "authority.pem") == (True, True)
        (other / "chain.pem").replace(own / "chain.pem")  # does not belong to the key
        assert served(own / "authority.pem") == (True, True)
        (other / "key.pem").replace(own / "key.pem")
        assert served(own / "authority.pem") == (False, False)
        assert served(other / "authority.pem") == (True, True)
        (own / "key.pem").unlink()
        assert served(other / "authority.pem") == (True, True)
