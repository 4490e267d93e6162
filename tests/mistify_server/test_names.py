import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.names import check_name


@pytest.mark.parametrize("name", ["a", "Cats-2.net_v1", "9", "x" * 64])
def test_plain_names_are_accepted(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["", "a/b", "..", "-a", "a b", "a\n", "é", "x" * 65])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(MistifyError, match="expected up to 64 letters, digits") as caught:
        check_name(name)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
