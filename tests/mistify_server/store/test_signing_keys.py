"""The key that signs packages is made once, stays private, and is replaced by one that it signs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify.package.signature import PackageSignature
from mistify_server.store.signing_keys import SIGNING_KEYS, SigningKeys

DIGEST = "ab" * 32

#: Makes the key of a store as soon as a line arrives, and prints the public key.
MAKE = """
import sys
from pathlib import Path
from mistify_server.store.signing_keys import SigningKeys
keys = SigningKeys(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
print(keys.make(), keys.public().current)
"""


@pytest.fixture
def keys(tmp_path: Path) -> SigningKeys:
    keys = SigningKeys(tmp_path / SIGNING_KEYS)
    assert keys.make()
    return keys


def signature(keys: SigningKeys) -> PackageSignature:
    return PackageSignature.model_validate_json(keys.sign(DIGEST))


def test_the_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path, keys: SigningKeys) -> None:
    first = keys.public()
    assert not SigningKeys(tmp_path / SIGNING_KEYS).make()
    assert keys.public() == first
    assert (tmp_path / SIGNING_KEYS).stat().st_mode & 0o777 == 0o600
    assert signature(keys).is_valid()
    assert signature(keys).keys == first
    assert keys.sign(DIGEST) == keys.sign(DIGEST)


def test_processes_that_start_together_make_one_key(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKE, str(tmp_path / SIGNING_KEYS)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].split() for process in started]
    assert sorted(made for made, _ in answers) == ["False", "False", "False", "True"]
    assert len({key for _, key in answers}) == 1


def test_a_rotated_key_is_signed_by_the_former_one(keys: SigningKeys) -> None:
    before, signed_before = keys.public(), signature(keys)
    after = keys.rotate()
    assert after == keys.public()
    assert after.keys == (before.current, after.current)
    assert after.is_valid()
    assert signature(keys).keys == after
    assert signed_before.is_valid()


def test_a_stolen_key_does_not_sign_its_successor(keys: SigningKeys) -> None:
    before = keys.public()
    after = keys.rotate(stolen=True)
    assert after.keys == (after.current,)
    assert after.current != before.current
    assert signature(keys).is_valid()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.chmod(0o640), "mode 0640"),
        (lambda path: path.write_text("{}"), "a damaged file"),
        (
            lambda path: path.write_text(
                json.dumps({**json.loads(path.read_text()), "private_key": PrivateKey.generate().text})
            ),
            "keys that do not fit together",
        ),
    ],
)
def test_an_unusable_key_is_reported_and_not_replaced(
    tmp_path: Path, keys: SigningKeys, damage: object, text: str
) -> None:
    path = tmp_path / SIGNING_KEYS
    secret = json.loads(path.read_text())["private_key"]
    damage(path)  # type: ignore[operator]
    for use in (keys.public, keys.rotate, lambda: keys.sign(DIGEST)):
        with pytest.raises(MistifyError) as caught:
            use()
        assert caught.value.code is ErrorCode.UNAVAILABLE
        (problem,) = caught.value.problems
        assert problem.place == str(path)
        assert text in problem.value
        assert problem.fix
        assert secret not in str(caught.value)
    assert keys.fault() == str(caught.value)
