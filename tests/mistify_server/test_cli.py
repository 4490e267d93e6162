import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import h5py
import pytest
from typer.testing import CliRunner

from mistify.errors import ErrorCode
from mistify.quotas import Quota
from mistify_server.cli import app
from mistify_server.identity.authentication import Authenticator, Credential
from mistify_server.identity.callers import DEFAULT_TENANT, Caller, Scope
from mistify_server.store.directory import open_store, serving
from mistify_server.store.models import NamedModel
from tests.support.plug_ins import environment, installed
from tests.support.servers import killed_at_the_end, server
from tests.support.tokens import write_token


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def check_refused(code: ErrorCode, text: str, *arguments: object) -> None:
    exit_code, output = run("serve", *arguments)
    assert exit_code == code.exit_code
    assert text in output
    assert "Traceback" not in output


def test_the_version_is_printed() -> None:
    assert run("--version") == (0, f"{metadata.version('mistify-porting')}\n")


async def test_the_server_runs_until_it_is_stopped(
    site: Any, tmp_path: Path, call_at: Any, wait_until: Callable[..., Any]
) -> None:
    ready = tmp_path / "ready"
    settings = tmp_path / "server.toml"
    settings.write_text(f'store = "{site.store}"\nlisten = "127.0.0.1:1"\nready_file = "ready"')
    command = ["serve", "--config", settings, "--listen", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "mistify_server.cli", *map(str, command)
    )
    with killed_at_the_end(process):
        await wait_until(ready.exists)
        caller = call_at(ready.read_text())
        assert (await caller.page(1)).jobs == []
        await caller.channel.close()
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 60) == 0


def test_a_config_with_problems_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text("slot = 2")
    check_refused(ErrorCode.INVALID_CONFIG, 'did you mean "slots"', "--config", tmp_path / "server.toml")
    check_refused(ErrorCode.INVALID_CONFIG, "--store: got nothing; expected a directory")


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        check_refused(ErrorCode.ADDRESS_IN_USE, "in use", "--store", tmp_path, "--listen", address)


def test_a_certificate_needs_its_key_and_has_to_be_valid(tmp_path: Path) -> None:
    (tmp_path / "chain.pem").write_text("no certificate")
    chain, key = ("--tls-certificate", tmp_path / "chain.pem"), ("--tls-key", tmp_path / "key.pem")
    where = ("--store", tmp_path / "store", "--listen", "127.0.0.1:0")
    check_refused(ErrorCode.INVALID_CONFIG, "--tls-key: got nothing", *where, *chain)
    check_refused(ErrorCode.INVALID_CONFIG, "--tls-certificate: got nothing", *where, *key)
    check_refused(ErrorCode.NOT_FOUND, "key.pem cannot be read", *where, *chain, *key)
    (tmp_path / "key.pem").write_text("no key")
    check_refused(ErrorCode.INVALID_CONFIG, "cannot be used with the key", *where, *chain, *key)


async def test_two_servers_cannot_share_a_port(site: Any, serving_at: Any, tmp_path: Path) -> None:
    async with serving_at(site.settings()) as caller:
        address = caller.address
        command = [sys.executable, "-m", "mistify_server.cli", "serve", "--store", str(tmp_path / "other")]
        process = await asyncio.create_subprocess_exec(*command, "--listen", address, stderr=subprocess.PIPE)
        with killed_at_the_end(process):
            _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == ErrorCode.ADDRESS_IN_USE.exit_code
    assert "in use by another program" in errors.decode()


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path):
        check_refused(ErrorCode.UNAVAILABLE, "another server", "--store", tmp_path, "--listen", "127.0.0.1:0")


def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path):
        pass
    with sqlite3.connect(tmp_path / "mistify.db") as connection:
        connection.execute("UPDATE meta SET value = '99'")
    check_refused(ErrorCode.STORE_VERSION, "schema is 99", "--store", tmp_path, "--listen", "127.0.0.1:0")


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_public_address_requires_a_token(tmp_path: Path, address: str) -> None:
    check_refused(ErrorCode.UNAUTHENTICATED, "--token-file", "--store", tmp_path, "--listen", address)


@pytest.mark.parametrize(
    "address", ["here", "127.0.0.1", "127.0.0.1:99999", ":7465", "no.such.host.invalid:1"]
)
def test_an_invalid_address_is_refused(tmp_path: Path, address: str) -> None:
    check_refused(ErrorCode.INVALID_CONFIG, "expected", "--store", tmp_path, "--listen", address)


def test_a_missing_data_root_is_refused(tmp_path: Path) -> None:
    arguments = ("--store", tmp_path / "store", "--data-root", tmp_path / "nowhere")
    check_refused(ErrorCode.NOT_FOUND, "nowhere", *arguments)


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    token = write_token(tmp_path / "token", "s3cret")
    token.chmod(0o644)
    check_refused(ErrorCode.INVALID_CONFIG, "chmod 600", "--store", tmp_path, "--token-file", token)


def test_an_unusable_metric_is_reported_at_the_start(tmp_path: Path) -> None:
    site = installed(tmp_path / "site", "wrong", "AXIS = 3\n", {"wrong": "wrong:AXIS"})
    with (
        (tmp_path / "log").open("w") as log,
        server(tmp_path / "store", log=log, environment=environment(site)),
    ):
        pass
    reported = (tmp_path / "log").read_text()
    assert "[warning] the metric wrong cannot be used: wrong:AXIS" in reported


def test_models_are_added_listed_and_removed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "net.h5", "w") as file:
        file.attrs["model_config"] = '{"class_name": "Sequential", "config": {"layers": []}}'
    store = ("--store", tmp_path / "store")
    assert run("models", "add", "Resnet", tmp_path / "net.h5", *store)[0] == 0
    assert run("models", "add", "resnet", tmp_path / "net.h5", *store)[0] == ErrorCode.CONFLICT.exit_code
    (tmp_path / "notes.keras").write_text("notes")
    exit_code, output = run("models", "add", "notes", tmp_path / "notes.keras", *store)
    assert exit_code == ErrorCode.INVALID_MODEL.exit_code
    assert "starts with b'note'" in output
    listed = run("models", "list", *store)[1]
    assert "Resnet" in listed
    assert "digits-resnet" in listed
    assert run("models", "remove", "RESNET", *store)[0] == 0
    assert run("models", "remove", "resnet", *store)[0] == ErrorCode.NOT_FOUND.exit_code


async def test_a_registered_model_is_ported(
    site: Any, serving_at: Any, make_config: Callable[..., dict[str, object]]
) -> None:
    with open_store(site.store) as store:
        model = NamedModel("Resnet", store.artifacts.put(site.root / "model.json"), "model.json")
        store.models.add(model)
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", model="RESNET", FLOP="0.5x")])
        assert (await caller.finished(job.id)).goals[0].files


def test_the_server_imports_no_libraries_of_workers() -> None:
    """They take seconds and memory, which all workers have, and no server needs."""
    modules = "mistify_server.cli, mistify_server.server, mistify_server.web.app"
    program = f"import sys, json, {modules}; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    unneeded = {"tensorflow", "keras", "scipy", "h5py", "executors.sources", "executors.structure"}
    assert not unneeded & set(json.loads(output))


def test_a_server_without_http_imports_no_libraries_for_it() -> None:
    """They would take 0.2 of the 1.4 s of processor time that a server imports."""
    program = (
        "import sys, mistify_server.server; print(sorted({'fastapi', 'starlette'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def make_store(directory: Path) -> Path:
    with open_store(directory):
        return directory


def test_tokens_are_made_listed_and_revoked(tmp_path: Path) -> None:
    make_store(tmp_path)
    add = ("tokens", "add", "ci", "--scope", "read", "--scope", "submit", "--store", tmp_path)
    code, secret = run(*add, "--days", 7)
    assert code == 0
    with open_store(tmp_path) as store:
        authenticator = Authenticator("other", store.tokens)
        known = asyncio.run(authenticator.caller(Credential.of(secret.strip())))
    assert known == Caller("ci", frozenset({Scope.READ, Scope.SUBMIT}), DEFAULT_TENANT)
    code, listed = run("tokens", "list", "--store", tmp_path)
    assert (code, "ci" in listed, "read, submit" in listed, secret.strip() in listed) == (
        0,
        True,
        True,
        False,
    )
    assert run(*add)[0] == ErrorCode.CONFLICT.exit_code
    assert run("tokens", "revoke", "ci", "--store", tmp_path) == (0, "revoked ci\n")
    assert run("tokens", "revoke", "ci", "--store", tmp_path)[0] == ErrorCode.NOT_FOUND.exit_code


def test_tokens_have_limits_that_can_be_changed(tmp_path: Path) -> None:
    store = ("--store", make_store(tmp_path))
    limits = ("--max-uploads", "5GB", "--max-jobs", 3, "--max-workers", 12_345)
    assert run("tokens", "add", "ci", "--scope", "submit", *limits, *store)[0] == 0
    assert run("tokens", "add", "free", "--scope", "submit", *store)[0] == 0
    assert run("tokens", "limit", "ci", "--max-jobs", 4, *store) == (0, "changed ci\n")
    with open_store(tmp_path) as opened:
        assert [token.limits for token in opened.tokens.all()] == [Quota(5 * 10**9, 4, 12_345), Quota()]
    listed = run("tokens", "list", *store)[1]
    assert all(text in listed for text in ("max. uploads", "5GB", "12,345"))
    assert run("tokens", "limit", "ci", "--max-workers", "none", *store)[0] == 0
    with open_store(tmp_path) as opened:
        assert opened.tokens.limits("ci") == Quota(5 * 10**9, 4, None)
    code, output = run("tokens", "limit", "ci", "--max-jobs", "few", *store)
    assert (code, '--max-jobs: got "few"; expected a number, or none' in output) == (2, True)
    code, output = run("tokens", "add", "other", "--scope", "submit", "--max-uploads", "0.5x", *store)
    assert (code, "a size such as 5GB" in output) == (2, True)
    assert run("tokens", "limit", "none", "--max-jobs", 1, *store)[0] == ErrorCode.NOT_FOUND.exit_code


def test_tokens_of_tenants_have_names_of_their_own(tmp_path: Path) -> None:
    store = ("--store", make_store(tmp_path))
    secrets = {}
    for tenant in ("default", "vision"):
        code, secret = run("tokens", "add", "ci", "--scope", "read", "--tenant", tenant, *store)
        assert code == 0
        secrets[tenant] = secret.strip()
    with open_store(tmp_path) as opened:
        authenticator = Authenticator("other", opened.tokens)
        known = {
            tenant: asyncio.run(authenticator.caller(Credential.of(secret)))
            for tenant, secret in secrets.items()
        }
    assert known == {tenant: Caller("ci", frozenset({Scope.READ}), tenant) for tenant in secrets}
    rows = [line.split() for line in run("tokens", "list", *store)[1].splitlines()]
    assert [row[0] for row in rows if "read" in row] == ["ci", "vision/ci"]
    assert run("tokens", "limit", "ci", "--tenant", "vision", "--max-jobs", 4, *store)[0] == 0
    assert run("tokens", "revoke", "ci", *store) == (0, "revoked ci\n")
    with open_store(tmp_path) as opened:
        assert (opened.tokens.all(), opened.of("vision").tokens.limits("ci").jobs) == ([], 4)
    subjects = [
        json.loads(line)["subject"] for line in (tmp_path / "logs" / "audit.jsonl").read_text().splitlines()
    ]
    assert subjects == ["ci", "vision/ci", "vision/ci", "ci"]
    code, output = run("tokens", "add", "ci", "--scope", "read", "--tenant", "a/b", *store)
    assert (code, 'got the name "a/b"' in output) == (ErrorCode.INVALID_CONFIG.exit_code, True)


def test_a_mistyped_store_is_refused_and_not_created(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for store in (tmp_path / "mistyped", tmp_path / "empty"):
        for command in (
            ("tokens", "add", "ci", "--scope", "read"),
            ("tokens", "list"),
            ("tokens", "limit", "ci"),
            ("tokens", "revoke", "ci"),
            ("models", "remove", "resnet"),
            ("groups", "add", "home", "--job", "a", "--scales", "{}"),
            ("groups", "list"),
            ("groups", "remove", "home"),
            ("jobs", "list"),
            ("jobs", "remove"),
        ):
            code, output = run(*command, "--store", store)
            assert code == ErrorCode.NOT_FOUND.exit_code
            assert f"--store: {store} is not a store" in output
            assert "give the --store of a server" in output
    assert not (tmp_path / "mistyped").exists()
    assert not any((tmp_path / "empty").iterdir())


def test_changes_by_commands_are_in_the_audit_log(tmp_path: Path) -> None:
    where = ("--store", make_store(tmp_path))
    code, secret = run("tokens", "add", "ci", "--scope", "read", *where)
    assert code == 0
    run("tokens", "add", "ci", "--scope", "read", *where)
    run("tokens", "list", *where)
    run("tokens", "revoke", "ci", *where)
    run("jobs", "remove", "job-1", *where)
    (tmp_path / "net.keras").write_bytes(b"network")
    run("models", "add", "net", tmp_path / "net.keras", *where)
    text = (tmp_path / "logs" / "audit.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["caller"], line["action"], line["subject"], line["outcome"]) for line in lines] == [
        ("local", "mistify-server tokens add", "ci", "OK"),
        ("local", "mistify-server tokens add", "ci", "CONFLICT"),
        ("local", "mistify-server tokens revoke", "ci", "OK"),
        ("local", "mistify-server jobs remove", "job-1", "NOT_FOUND"),
        ("local", "mistify-server models add", "net", "INVALID_MODEL"),
    ]
    assert secret.strip() not in text
