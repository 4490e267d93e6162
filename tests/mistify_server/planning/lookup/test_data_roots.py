import re
from pathlib import Path

import pytest

from mistify.config.files import PathKind
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import InvalidValue
from mistify_server.planning.lookup.data_roots import DataRoots


@pytest.fixture
def roots(tmp_path: Path) -> DataRoots:
    for name in ("first", "second", "secret"):
        (tmp_path / name).mkdir()
    (tmp_path / "first" / "train.npz").write_text("first")
    (tmp_path / "second" / "train.npz").write_text("second")
    (tmp_path / "second" / "test.npz").write_text("second")
    (tmp_path / "secret" / "key").write_text("secret")
    return DataRoots.of([tmp_path / "first", tmp_path / "second"], tmp_path / "first" / "store")


def test_roots_are_searched_in_order(roots: DataRoots) -> None:
    assert roots.find("train.npz").read_text() == "first"
    assert roots.find("test.npz").read_text() == "second"


def test_an_absolute_path_may_be_below_any_root(roots: DataRoots, tmp_path: Path) -> None:
    assert roots.find(str(tmp_path / "second" / "train.npz")).read_text() == "second"


@pytest.mark.parametrize("path", ["../secret/key", "{base}/secret/key", "{base}/first/../secret/key", "link"])
def test_nothing_outside_the_roots_is_found(roots: DataRoots, tmp_path: Path, path: str) -> None:
    (tmp_path / "first" / "link").symlink_to(tmp_path / "secret" / "key")
    with pytest.raises(InvalidValue, match="below a data root"):
        roots.find(path.format(base=tmp_path))


def test_a_link_out_of_the_roots_is_not_followed(roots: DataRoots, tmp_path: Path) -> None:
    (tmp_path / "first" / "inside").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidValue, match="move it there"):
        roots.find("inside/key")


def test_a_link_within_the_roots_is_followed(roots: DataRoots, tmp_path: Path) -> None:
    (tmp_path / "first" / "link").symlink_to(tmp_path / "second" / "test.npz")
    assert roots.find("link") == tmp_path / "second" / "test.npz"


@pytest.mark.parametrize("path", ["missing", "", "a/" * 5000, "train.npz\0", ".", "first"])
def test_the_error_for_a_missing_file_lists_the_searched_roots(
    roots: DataRoots, path: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidValue, match=str(tmp_path / "second")):
        roots.find(path)


def test_files_and_directories_are_found(roots: DataRoots, tmp_path: Path) -> None:
    (tmp_path / "second" / "saved").mkdir()
    (tmp_path / "first" / "out").symlink_to(tmp_path / "secret")
    for wanted in (PathKind.DIRECTORY, PathKind.EITHER):
        assert roots.find("saved", wanted) == tmp_path / "second" / "saved"
        with pytest.raises(InvalidValue, match=f"{wanted.value} below a data root"):
            roots.find("out", wanted)
    assert roots.find("test.npz", PathKind.EITHER) == tmp_path / "second" / "test.npz"
    with pytest.raises(
        InvalidValue, match=r"a directory below a data root .*; it is a file; name another one"
    ):
        roots.find("test.npz", PathKind.DIRECTORY)
    with pytest.raises(
        InvalidValue, match=r"a file below a data root .*; it is a directory; name another one"
    ):
        roots.find("saved")
    (tmp_path / "first" / "test.npz").mkdir()
    assert roots.find("test.npz") == tmp_path / "second" / "test.npz"


@pytest.mark.parametrize(
    ("wanted", "there", "suggested"),
    [
        ("nope2.npz", ["nan.npz"], None),
        ("mobilenet.keras", ["mobilenet.h5", "test.keras"], "mobilenet.h5"),
        ("trian.npz", ["train.npz", "test.npz"], "train.npz"),
        ("photos", ["photo", "notes"], "photo"),
    ],
)
def test_names_with_another_suffix_are_suggested(
    tmp_path: Path, wanted: str, there: list[str], suggested: str | None
) -> None:
    for name in there:
        (tmp_path / name).touch()
    advice = f'did you mean "{suggested}"' if suggested else "check the path"
    with pytest.raises(InvalidValue, match=re.escape(advice)):
        DataRoots.of([tmp_path], tmp_path / "store").find(wanted)


def test_similar_names_are_suggested(roots: DataRoots, tmp_path: Path) -> None:
    (tmp_path / "second" / "deep").mkdir()
    (tmp_path / "second" / "deep" / "cifar10.npz").touch()
    with pytest.raises(InvalidValue, match='did you mean "deep/cifar10'):
        roots.find("deep/cifar_10.npz")


def test_the_error_without_roots_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="--data-root"):
        DataRoots.of([], tmp_path).find("train.npz")


def test_a_missing_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MistifyError) as raised:
        DataRoots.of([tmp_path / "nowhere"], tmp_path)
    assert raised.value.code is ErrorCode.NOT_FOUND


@pytest.mark.parametrize("has_roots", [True, False])
def test_the_error_says_how_to_send_a_file_that_the_server_does_not_have(
    tmp_path: Path, has_roots: bool
) -> None:
    checks = "check the path; .*; to send" if has_roots else "; to send"
    sends = r"PUT /v1/files/SHA256, and name it upload:SHA256/net\.keras"
    with pytest.raises(InvalidValue, match=f"{checks} a file: {sends}"):
        DataRoots.of([tmp_path] if has_roots else [], tmp_path / "store").find("models/net.keras")


@pytest.mark.parametrize("kind", PathKind)
@pytest.mark.parametrize(
    "path", ["store/signing", "store", ".", "{base}/first/store/signing", "link", "up/first"]
)
def test_no_path_gives_access_to_the_store(
    roots: DataRoots, tmp_path: Path, path: str, kind: PathKind
) -> None:
    """It is below the first root: neither its files, nor a directory with it, can be read as data."""
    (tmp_path / "first" / "store").mkdir()
    (tmp_path / "first" / "store" / "signing").write_text("secret")
    (tmp_path / "second" / "link").symlink_to(tmp_path / "first" / "store")
    (tmp_path / "second" / "up").symlink_to(tmp_path)
    with pytest.raises(InvalidValue, match="below a data root"):
        DataRoots.of([tmp_path / "first"], tmp_path / "first" / "store").find(
            path.format(base=tmp_path), kind
        )
    with pytest.raises(InvalidValue, match="the server's store is there; use a directory without it"):
        roots.find("link", kind)


def test_names_in_the_store_are_not_suggested(roots: DataRoots, tmp_path: Path) -> None:
    (tmp_path / "first" / "store").mkdir()
    (tmp_path / "first" / "store" / "signing").write_text("secret")
    with pytest.raises(InvalidValue) as raised:
        roots.find("store/signin")
    assert "did you mean" not in str(raised.value.problem("model"))


def test_a_root_in_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store" / "artifacts").mkdir(parents=True)
    for root in (tmp_path / "store", tmp_path / "store" / "artifacts"):
        with pytest.raises(MistifyError, match="use a directory outside of it") as raised:
            DataRoots.of([root], tmp_path / "store")
        assert raised.value.code is ErrorCode.INVALID_CONFIG
