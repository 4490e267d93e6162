"""Benchmarks compare only with the clean checkout of another commit."""

import subprocess
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

import pytest

from benchmarks.harness import checkouts
from benchmarks.harness.checkouts import add_against_option, other_checkout
from benchmarks.harness.records import commit


def git(directory: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    subprocess.run(["git", "-C", directory, *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout one commit before that of this benchmark."""
    here = tmp_path / "here"
    here.mkdir()
    git(here, "init", "--quiet")
    for content in ("one", "two"):
        (here / "file").write_text(content)
        git(here, "add", "file")
        git(here, "commit", "--quiet", "--message", content)
    git(here, "worktree", "add", "--quiet", str(tmp_path / "other"), "HEAD~1")
    monkeypatch.setattr(checkouts, "HERE", here)
    return tmp_path / "other"


def test_another_commit_is_compared(other: Path) -> None:
    assert other_checkout(str(other)) == other
    parser = ArgumentParser()
    add_against_option(parser, commit=str(commit(other))[:7])
    assert parser.parse_args(["--against", str(other)]).against == other


def test_this_commit_is_not_compared_with_itself(other: Path) -> None:
    git(other, "checkout", "--quiet", "--detach", str(commit(checkouts.HERE)))
    with pytest.raises(ArgumentTypeError, match="has the commit of this checkout"):
        other_checkout(str(other))


def test_a_changed_checkout_is_refused(other: Path) -> None:
    (other / "file").write_text("three")
    with pytest.raises(ArgumentTypeError, match="changes that are not committed"):
        other_checkout(str(other))


def test_another_commit_than_that_of_the_targets_is_refused(
    other: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = ArgumentParser()
    add_against_option(parser, commit="5daba0d1")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--against", str(other)])
    assert ended.value.code == 2
    assert "the targets compare with 5daba0d1" in capsys.readouterr().err


def test_a_directory_without_a_commit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="is not a checkout"):
        other_checkout(str(tmp_path / "none"))
