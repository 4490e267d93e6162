import mmap
import struct
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


def test_a_new_switchboard_selects_the_default(tmp_path):
    switchboard = Switchboard.open(tmp_path / "state")
    assert (switchboard.option, switchboard.generation) == (DEFAULT_OPTION, 0)


def test_another_process_can_set_the_option(tmp_path):
    switchboard = Switchboard.open(tmp_path)
    subprocess.run([sys.executable, "-c", SET, tmp_path], check=True)
    assert (switchboard.option, switchboard.generation) == (5, 1)


def test_the_option_is_persistent(tmp_path):
    Switchboard.open(tmp_path).option = 2
    assert Switchboard.open(tmp_path).option == 2


def test_a_new_version_starts_with_the_default_and_keeps_the_option_of_the_previous_one(tmp_path):
    switchboard = Switchboard.open(tmp_path)
    switchboard.option = 2
    for generation in (1, 2):
        before = switchboard.option
        switchboard.bump()
        assert (switchboard.option, switchboard.generation) == (DEFAULT_OPTION, generation)
        assert switchboard.option_in(generation - 1) == before
        switchboard.option = generation


class Flushed(mmap.mmap):
    """Memory that tells what a power cut would leave of it."""

    on_disk = bytes(24)

    def flush(self, *part):
        super().flush(*part)
        self.on_disk = self[:]


def test_an_announced_version_has_its_default_option_after_a_power_cut(tmp_path):
    Switchboard.open(tmp_path).option = 2
    with (tmp_path / "switchboard").open("r+b") as file:
        memory = Flushed(file.fileno(), 0)
    Switchboard(memory).bump()
    left = Switchboard(bytearray(memory.on_disk))
    assert (left.generation, left.option, left.option_in(0)) == (1, DEFAULT_OPTION, 2)


def test_generations_wrap_around():
    switchboard = Switchboard(bytearray(b"MISTIFY\1" + 12 * b"\xff"))
    assert switchboard.generation == 2**32 - 1
    switchboard.bump()
    assert switchboard.generation == 0


@pytest.mark.parametrize("left", [b"", b"MIST", b"something else altogether"])
def test_an_invalid_file_is_recreated(tmp_path, left):
    (tmp_path / "switchboard").write_bytes(left)
    Switchboard.open(tmp_path).option = 2
    assert Switchboard.open(tmp_path).option == 2


def test_in_memory_switchboards_are_independent():
    mine, other = Switchboard(), Switchboard()
    mine.option = 2
    assert (mine.option, other.option) == (2, DEFAULT_OPTION)


def test_apps_decide_about_helpers_until_told_otherwise(tmp_path):
    switchboard, other = Switchboard.open(tmp_path), Switchboard.open(tmp_path)
    assert not other.alone
    switchboard.forbid_helpers(60)
    assert other.alone
    switchboard.bump()
    assert other.alone
    switchboard.forbid_helpers(0)
    assert not other.alone


@pytest.mark.parametrize(("later", "alone"), [(50, True), (70, False), (-1000, False)])
def test_apps_decide_again_after_the_monitor_was_killed_or_the_device_restarted(tmp_path, later, alone):
    now = 1010.0
    Switchboard.open(tmp_path, lambda: now).forbid_helpers(60)
    now += later
    assert Switchboard.open(tmp_path, lambda: now).alone is alone


def test_a_file_of_an_earlier_version_keeps_its_options(tmp_path):
    earlier = b"MISTIFY\1" + struct.pack("<Iii", 7, 2, 3)
    (tmp_path / "switchboard").write_bytes(earlier)
    switchboard = Switchboard.open(tmp_path)
    assert (switchboard.generation, switchboard.option, switchboard.option_in(6)) == (7, 3, 2)
    assert not switchboard.alone
