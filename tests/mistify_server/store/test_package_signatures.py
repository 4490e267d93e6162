"""Packages in a store are signed: new ones, those of earlier versions, and all again after a theft."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import MANIFEST
from mistify.package.signature import SIGNATURE_FILE, PackageSignature
from mistify_server.cli import app
from mistify_server.store.backup import back_up
from mistify_server.store.checking import check_store
from mistify_server.store.directory import Store, open_store
from mistify_server.store.package_signatures import prepare_signing
from mistify_server.store.signing_keys import SIGNING_KEYS
from tests.support.stored import digits_job

Config = Callable[..., dict[str, object]]


def signatures(store: Store) -> list[PackageSignature]:
    """Return the signatures of all packages, after checking that they are for their manifests."""
    found = []
    for package in store.jobs.packages():
        assert package.signature is not None
        path = store.artifacts.place(f"{package.signature.sha256}.json")
        signature = PackageSignature.model_validate_json(path.read_bytes())
        assert signature.manifest == package.manifest
        assert signature.is_valid()
        found.append(signature)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a store of a version without signatures."""
    (tmp_path / "store").mkdir()
    digits_job(tmp_path / "store")
    return tmp_path / "store"


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


async def test_a_new_package_is_signed(site: Any, serving_at: Any, make_config: Config) -> None:
    async with serving_at(site.settings()) as caller:
        job = await caller.submit([make_config("a", FLOP="0.5x"), make_config("b", FLOP="0.4x")])
        job = await caller.finished(job.id)
        for goal in job.goals:
            assert {file.name for file in goal.files} == {MANIFEST, SIGNATURE_FILE, "serve.tflite"}
            content = await caller.fetch(job.id, goal.id, SIGNATURE_FILE)
            signature = PackageSignature.model_validate_json(content)
            assert signature.is_valid()
            assert signature.manifest == next(file.sha256 for file in goal.files if file.name == MANIFEST)
    with open_store(site.store) as store:
        assert {signature.keys for signature in signatures(store)} == {store.signing_keys.public()}
        before = store.signing_keys.public()
    async with serving_at(site.settings()):
        pass
    with open_store(site.store) as store:
        assert store.signing_keys.public() == before
    assert check_store(site.store).problems == ()


def test_packages_of_earlier_versions_are_signed_once(directory: Path) -> None:
    with open_store(directory) as store:
        packages = store.jobs.packages()
        assert packages
        assert all(package.signature is None for package in packages)
        prepare_signing(store)
        first = signatures(store)
        assert len(first) == len(packages)
        prepare_signing(store)
        assert signatures(store) == first


def test_a_lost_key_is_not_replaced_silently(directory: Path) -> None:
    with open_store(directory) as store:
        prepare_signing(store)
        before = store.signing_keys.public()
        back_up(directory, directory.parent / "backup")
        (directory / SIGNING_KEYS).unlink()
        with pytest.raises(MistifyError, match="restore it from a backup") as caught:
            prepare_signing(store)
        assert caught.value.code is ErrorCode.UNAVAILABLE
    assert any(SIGNING_KEYS in problem for problem in check_store(directory).problems)
    with open_store(directory.parent / "backup") as store:
        assert store.signing_keys.public() == before
        assert (directory.parent / "backup" / SIGNING_KEYS).stat().st_mode & 0o777 == 0o600
        assert len(signatures(store)) == len(store.jobs.packages())


def test_after_a_rotation_packages_keep_their_signatures(directory: Path) -> None:
    with open_store(directory) as store:
        prepare_signing(store)
        before = signatures(store)
        code, printed = run("signing-keys", "rotate", "--store", directory)
        assert code == 0
        assert signatures(store) == before
        first, second = store.signing_keys.public().keys
        assert (first, second) == (before[0].keys.current, printed.strip())
    assert run("signing-keys", "list", "--store", directory) == (0, f"{first}\n{second}\n")
    assert not any("signature" in problem for problem in check_store(directory).problems)
    audit = (directory / "logs" / "audit.jsonl").read_text()
    assert json.loads(audit)["action"] == "mistify-server signing-keys rotate"


def test_after_a_theft_all_packages_are_signed_by_the_new_key_alone(directory: Path) -> None:
    with open_store(directory) as store:
        prepare_signing(store)
        stolen = store.signing_keys.public().current
        code, printed = run("signing-keys", "rotate", "--stolen", "--store", directory)
        assert code == 0
        for signature in signatures(store):
            assert signature.keys.keys == (printed.strip(),)
            assert stolen not in signature.keys.keys


def test_a_signature_by_another_key_is_found_by_the_check(directory: Path) -> None:
    with open_store(directory) as store:
        prepare_signing(store)
        store.signing_keys.rotate(stolen=True)
    problems = [problem for problem in check_store(directory).problems if SIGNATURE_FILE in problem]
    assert problems
    assert all("rotate --stolen" in problem for problem in problems)


def test_a_store_without_a_key_has_none_to_list(directory: Path) -> None:
    code, output = run("signing-keys", "list", "--store", directory)
    assert code == ErrorCode.UNAVAILABLE.exit_code
    assert SIGNING_KEYS in output
