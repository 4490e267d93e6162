"""The record of the token files of servers."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from mistify_client.origin import note_token_file, token_file_for


def test_servers_that_are_recorded_at_once_are_all_recorded(tmp_path: Path) -> None:
    state, servers = tmp_path / "package.state", [f"host-{number}:1" for number in range(16)]
    token = tmp_path / "token"
    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(partial(note_token_file, state, token_file=token), servers))
    assert [token_file_for(state, server) for server in servers] == [token] * len(servers)


def test_a_server_without_a_token_has_no_record_and_needs_no_file(tmp_path: Path) -> None:
    state = tmp_path / "package.state"
    note_token_file(state, "host:1", None)
    assert not state.exists()
    note_token_file(state, "host:1", tmp_path / "token")
    note_token_file(state, "host:1", None)
    assert token_file_for(state, "host:1") is None
