"""Errors of the operating system as a user sees them."""

import errno
import os

import pytest
import typer

from mistify_client.cli.errors import EXIT_FAILED, reported_errors


@pytest.mark.parametrize(
    ("number", "files", "expected"),
    [
        (errno.ENOSPC, (), "mistify: No space left on device; free some space, and repeat the command"),
        (
            errno.EROFS,
            ("/media/package.state",),
            "mistify: /media/package.state: Read-only file system; "
            "copy the package to a directory that can be written to",
        ),
        (errno.EIO, ("a", None, "b"), "mistify: a or b: Input/output error"),
    ],
)
def test_the_file_the_reason_and_the_way_to_fix_it_are_named(number, files, expected, capsys):
    with pytest.raises(typer.Exit) as ended, reported_errors():
        raise OSError(number, os.strerror(number), *files)
    assert ended.value.exit_code == EXIT_FAILED
    assert " ".join(capsys.readouterr().err.split()) == expected


def test_an_error_of_another_library_keeps_its_text(capsys):
    with pytest.raises(typer.Exit), reported_errors():
        raise OSError("the reader is gone")
    assert capsys.readouterr().err == "mistify: the reader is gone\n"
