from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.tokens import read_token
from tests.support.tokens import write_token


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640])
def test_white_space_around_a_token_is_ignored(tmp_path: Path, mode: int) -> None:
    path = write_token(tmp_path / "token", " s3cret\n")
    path.chmod(mode)
    assert read_token(path) == "s3cret"


def test_without_a_file_there_is_no_token() -> None:
    assert read_token(None) is None


@pytest.mark.parametrize("mode", [0o644, 0o602, 0o601])
def test_a_file_that_other_users_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = write_token(tmp_path / "token", "s3cret")
    path.chmod(mode)
    error = refused(path)
    assert f"{path}: got mode {mode:04o}; expected a file that other users cannot read" in str(error)
    assert f"chmod 600 {path}" in str(error)


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe"])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes) -> None:
    path = write_token(tmp_path / "token", "")
    path.write_bytes(content)
    assert str(path) in str(refused(path))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in str(refused(tmp_path / "token"))
    assert "Is a directory" in str(refused(tmp_path))


def refused(path: Path) -> MistifyError:
    with pytest.raises(MistifyError) as caught:
        read_token(path)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value
