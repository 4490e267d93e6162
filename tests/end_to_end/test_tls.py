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
    directory.mkdir(exist_ok=True, parents=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "authority.pem"))
    certificate = authority.issue_cert(name)
    certificate.private_key_pem.write_to_path(str(directory / "key.pem"))
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    (directory / "chain.pem").write_bytes(chain)
    return "--tls-certificate", directory / "chain.pem", "--tls-key", directory / "key.pem"


def devices(
    address: str, authority: Path | None, *options: str | Path, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `mistify devices` as a client that trusts this authority, or by default the public ones."""
    trusted = [] if authority is None else ["--ca", str(authority)]
    command = [MISTIFY, "devices", "--server", address, *trusted, *map(str, options)]
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


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """Run a server that asks for certificates; yield both addresses and the directory of the files."""
    base = tmp_path_factory.mktemp("mutual")
    certified(base / "client", "device.example")
    certified(base / "stranger", "device.example")
    options = *certified(base / "own", "127.0.0.1"), "--tls-client-ca", base / "client" / "authority.pem"
    with server(base / "store", *options, "--http", "127.0.0.1:0") as (listening, process):
        yield listening, last_word(process), base


def identity(directory: Path) -> tuple[str | Path, ...]:
    return "--certificate", directory / "chain.pem", "--key", directory / "key.pem"


def test_clients_with_a_certificate_of_the_authority_are_served(asking: tuple[str, str, Path]) -> None:
    listening, url, base = asking
    authority, own = base / "own" / "authority.pem", base / "client"
    by_environment = {
        "MISTIFY_CERTIFICATE": str(own / "chain.pem"), "MISTIFY_KEY": str(own / "key.pem")
    }  # fmt: skip
    for done in (
        devices(listening, authority, *identity(own)),
        devices(listening, authority, **by_environment),
    ):
        assert done.returncode == 0, done.stderr
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(own / "chain.pem", own / "key.pem")
    assert httpx.get(f"{url}healthz", verify=context).status_code == 200


@pytest.mark.parametrize("name", [None, "stranger"])
def test_clients_without_such_a_certificate_are_refused(
    asking: tuple[str, str, Path], name: str | None
) -> None:
    listening, url, base = asking
    authority = base / "own" / "authority.pem"
    done = devices(listening, authority, *(() if name is None else identity(base / name)))
    assert done.returncode == ErrorCode.UNAUTHENTICATED.exit_code, done.stderr
    assert "asks for a certificate of its clients" in done.stderr.replace("\n", " ")
    context = ssl.create_default_context(cafile=str(authority))
    if name is not None:
        context.load_cert_chain(base / name / "chain.pem", base / name / "key.pem")
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}healthz", verify=context)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--certificate", "chain.pem"), "--key (or MISTIFY_KEY)"),
        (("--certificate", "absent.pem", "--key", "key.pem"), "--certificate"),
        (("--certificate", "chain.pem", "--key", "chain.pem"), "--key"),
    ],
)
def test_the_error_names_a_file_of_the_client_that_cannot_be_used(
    asking: tuple[str, str, Path], options: tuple[str, ...], problem: str
) -> None:
    listening, _, base = asking
    files = [base / "client" / word if word.endswith(".pem") else word for word in options]
    done = devices(listening, base / "own" / "authority.pem", *files)
    assert done.returncode == ErrorCode.INVALID_CONFIG.exit_code
    assert problem in done.stderr


def test_certificates_of_clients_need_one_of_the_server(tmp_path: Path) -> None:
    command = [
        MISTIFY.with_name("mistify-server"),
        "serve",
        "--store",
        tmp_path / "store",
        "--tls-client-ca",
        tmp_path / "ca.pem",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ErrorCode.INVALID_CONFIG.exit_code
    assert "--tls-certificate" in done.stderr
    assert "--tls-key" in done.stderr
