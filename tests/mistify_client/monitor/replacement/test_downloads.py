"""Downloads of new packages: insufficient disk space, and the token of the server."""

import shutil

from mistify_client.origin import token_file_for
from mistify_client.runtime.versions import current, state_directory
from tests.support.tokens import write_token


def test_a_package_too_large_for_the_disk_is_given_up(site, package, monkeypatch):
    full = shutil.disk_usage(package)._replace(free=0)
    monkeypatch.setattr("mistify_client.rpc.download.shutil.disk_usage", lambda directory: full)
    site.ask()
    assert "no room" in site.until("rejected")["reason"]
    assert current(package) == package
    assert not site.state.candidate.exists()


def test_the_token_of_the_server_is_recorded_for_later_downloads_of_blocks(site, service, package, tmp_path):
    token_file = write_token(tmp_path / "token", "own")
    site.ask(token_file=token_file)
    site.until("probation")
    assert token_file_for(state_directory(package), service.address) == token_file
