"""A bucket's connection, which threads share, and credentials that a program gives out."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.objects.address import BucketAddress
from mistify_server.store.objects.bucket import CONNECTIONS, Bucket

#: Prints credentials the first time, and fails later, because it removes a file.
_PROGRAM = """
import json, pathlib, sys
pathlib.Path(sys.argv[1]).unlink()
keys = {"AccessKeyId": "tester", "SecretAccessKey": "secret", "SessionToken": "token"}
print(json.dumps({"Version": 1, "Expiration": sys.argv[2], **keys}))
"""


@pytest.fixture
def credentials_until(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have credentials that a program gives out once, and that have to be renewed by a time."""

    def use(expiration: str) -> None:
        program, once, config = (tmp_path / name for name in ("program.py", "once", "config"))
        program.write_text(_PROGRAM)
        once.touch()
        config.write_text(f"[default]\ncredential_process = {sys.executable} {program} {once} {expiration}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)

    return use


def test_threads_that_begin_together_share_a_connection(
    address: str, credentials_until: Callable[[str], None]
) -> None:
    credentials_until("2999-01-01T00:00:00Z")
    bucket, together = Bucket(BucketAddress.of(address)), Barrier(CONNECTIONS)

    def find(key: str) -> object:
        together.wait(60)
        return bucket.find(key)

    with ThreadPoolExecutor(CONNECTIONS) as threads:
        assert set(threads.map(find, map(str, range(CONNECTIONS)))) == {None}


def test_credentials_that_cannot_be_renewed_are_a_refusal(
    address: str, credentials_until: Callable[[str], None]
) -> None:
    credentials_until("2020-01-01T00:00:00Z")
    with pytest.raises(MistifyError, match="cannot be used without credentials") as raised:
        Bucket(BucketAddress.of(address)).find("a")
    assert raised.value.code is ErrorCode.STORE_REFUSED
