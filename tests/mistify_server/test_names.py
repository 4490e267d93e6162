import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.names import check_idempotency_key, check_name


@pytest.mark.parametrize("name", ["a", "Cats-2.net_v1", "9", "x" * 64])
def test_plain_names_are_accepted(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "a/b", "..", "-a", "a b", "a\n", "é", "x" * 65])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(MistifyError, match="expected up to 64 letters, digits") as caught:
        check_name(name)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("key", ["", "3f0a", "é" * 200])
def test_short_idempotency_keys_are_accepted(key: str) -> None:
    check_idempotency_key(key)


@pytest.mark.parametrize(
    ("key", "length"), [("x" * 3_000, "3,000"), ("x" * 201, "201"), ("a\0b", "3"), ("a\nb", "3")]
)
def test_other_idempotency_keys_are_refused(key: str, length: str) -> None:
    with pytest.raises(MistifyError, match=f"with {length} characters; expected up to 200 print") as caught:
        check_idempotency_key(key)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
