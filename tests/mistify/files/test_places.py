"""Where files of a user are."""

import os
from pathlib import Path

import pytest

from mistify.files.places import cache_directory, config_directory

#: A user without an entry in the system's list, as in containers that run as any user.
_NOBODY_KNOWN = 54321


def test_a_user_s_files_are_below_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_directory() == Path("/home/someone/.cache/mistify")
    assert config_directory() == Path("/home/someone/.config/mistify")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_user_without_a_home_directory_has_places_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    child = os.fork()
    if child == 0:
        try:
            os.setuid(_NOBODY_KNOWN)
            expected = Path("/.cache/mistify"), Path("/.config/mistify")
            os._exit(0 if (cache_directory(), config_directory()) == expected else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
