import subprocess
import sys

import pytest

from mistify_client.runtime.switchboard import DEFAULT_OPTION, Switchboard

SET = """
import sys
from pathlib import Path
from mistify_client.runtime.switchboard import Switchboard
switchboard = Switchboard.open(Path(sys.argv[1]))
switchboard.bump()
switchboard.option = 5
"""


def test_says_nothing_at_first(tmp_path):
    switchboard = Switchboard.open(tmp_path / "state")
    assert (switchboard.option, switchboard.generation) == (DEFAULT_OPTION, 0)


def test_another_process_sets_it(tmp_path):
    switchboard = Switchboard.open(tmp_path)
    subprocess.run([sys.executable, "-c", SET, tmp_path], check=True)
    assert (switchboard.option, switchboard.generation) == (5, 1)


def test_keeps_what_was_set(tmp_path):
    Switchboard.open(tmp_path).option = 2
    assert Switchboard.open(tmp_path).option == 2


def test_another_version_runs_its_default_branch_and_leaves_that_of_the_one_before(tmp_path):
    switchboard = Switchboard.open(tmp_path)
    switchboard.option = 2
    for generation in (1, 2):
        before = switchboard.option
        switchboard.bump()
        assert (switchboard.option, switchboard.generation) == (DEFAULT_OPTION, generation)
        assert switchboard.option_in(generation - 1) == before
        switchboard.option = generation


def test_generations_begin_again_after_the_last():
    switchboard = Switchboard(bytearray(b"MISTIFY\1" + 12 * b"\xff"))
    assert switchboard.generation == 2**32 - 1
    switchboard.bump()
    assert switchboard.generation == 0


@pytest.mark.parametrize("left", [b"", b"MIST", b"something else altogether"])
def test_a_file_that_is_none_is_made_again(tmp_path, left):
    (tmp_path / "switchboard").write_bytes(left)
    Switchboard.open(tmp_path).option = 2
    assert Switchboard.open(tmp_path).option == 2


def test_one_of_a_process_is_its_own():
    mine, other = Switchboard(), Switchboard()
    mine.option = 2
    assert (mine.option, other.option) == (2, DEFAULT_OPTION)
