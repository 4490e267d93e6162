import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path, PurePath

import pytest

from mistify.config.task import TaskConfig
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.package.verification import verify
from mistify_client.runtime.loading import load
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import current, install, previous, roll_back, state_directory
from tests.support.disks import files_limited_to

#: Installs, and dies or fails just before the n-th file operation, for every n.
FAULTS = """
import errno, os, shutil, sys
from pathlib import Path
from mistify.errors import MistifyError
from mistify_client.runtime.versions import install
package, new, scratch, fault = map(Path, sys.argv[1:])
WATCHED = {"open", "os.mkdir", "os.rename", "os.symlink", "os.remove", "os.rmdir", "os.chmod", "os.scandir",
           "shutil.copyfile", "fcntl.flock", "mmap.__new__"}
left = -1

def hook(event, arguments):
    global left
    if event in WATCHED and left >= 0:
        left -= 1
        if left < 0:
            if fault.name == "crash":
                os._exit(9)
            raise OSError(errno.ENOSPC, "No space left on device")

sys.addaudithook(hook)
for step in range(1000):
    copy = scratch / str(step)
    shutil.copytree(package.parent, copy, symlinks=True)
    if not os.fork():
        left = step
        try:
            install(copy / package.name, new)
        except OSError as error:
            assert error.errno == errno.ENOSPC
        except MistifyError as error:  # a manifest that cannot be read is reported as damaged
            assert error.__cause__.errno == errno.ENOSPC
        os._exit(0 if left >= 0 else 9)
    _, status = os.wait()
    assert status in (0, 9 << 8), status
    if not status:
        break
print(step)
"""

INSTALL = """
import sys
from pathlib import Path
from mistify_client.runtime.versions import install
for _ in range(10):
    install(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.fixture
def shipped(package, tmp_path) -> Path:
    """Return a package in its own directory."""
    (tmp_path / "app").mkdir()
    return package.rename(tmp_path / "app" / "package")


@pytest.fixture
def new(shipped, tmp_path) -> Path:
    return other_version(shipped, tmp_path / "new", "second")


def other_version(package: Path, directory: Path, job: str) -> Path:
    """Return a copy of a package with another job id."""
    shutil.copytree(package, directory)
    Manifest.load(package).model_copy(update={"job": job}).save(directory)
    return directory


def job(package: Path) -> str:
    return verify(package).job


def content(package: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in package.iterdir()}


def installed(package: Path) -> list[Path]:
    return sorted((state_directory(package) / "versions").iterdir())


def test_a_package_is_its_own_current_version(shipped):
    assert current(shipped) == shipped
    assert not state_directory(shipped).exists()


def test_a_copy_is_installed(shipped, new):
    before = content(shipped)
    install(shipped, new)
    copied = content(current(shipped))
    assert copied == content(new)
    shutil.rmtree(new)
    assert content(current(shipped)) == copied
    assert content(shipped) == before
    assert previous(shipped) == shipped
    assert Switchboard.open(state_directory(shipped)).generation == 1


def test_any_path_to_a_package_leads_to_the_same_state(shipped, new, monkeypatch):
    install(shipped, new)
    monkeypatch.chdir(shipped)
    (shipped.parent / "link").symlink_to(shipped)
    assert job(current(Path())) == job(current(shipped.parent / "link")) == "second"


def test_one_previous_version_is_kept(shipped, new, tmp_path):
    install(shipped, new)
    install(shipped, other_version(shipped, tmp_path / "newer", "third"))
    install(shipped, other_version(shipped, tmp_path / "newest", "fourth"))
    assert (job(current(shipped)), job(previous(shipped))) == ("fourth", "third")
    assert len(installed(shipped)) == 2


def test_rollback_goes_step_by_step_to_the_shipped_version(shipped, new, tmp_path):
    install(shipped, new)
    install(shipped, other_version(shipped, tmp_path / "newer", "third"))
    roll_back(shipped)
    assert job(current(shipped)) == "second"
    roll_back(shipped)
    assert current(shipped) == shipped
    assert Switchboard.open(state_directory(shipped)).generation == 4
    with pytest.raises(MistifyError, match="no version before") as caught:
        roll_back(shipped)
    assert caught.value.code is ErrorCode.NOT_FOUND


def test_rollback_goes_from_derived_versions_to_the_one_before_their_base(shipped, new, tmp_path):
    install(shipped, new)
    install(shipped, other_version(shipped, tmp_path / "third", "third"))
    for name in ("tuned", "again", "thrice"):
        install(shipped, other_version(shipped, tmp_path / name, name), derived_from=current(shipped))
    assert job(previous(shipped)) == "again"
    assert len(installed(shipped)) == 4
    jobs = []
    while current(shipped) != shipped:
        jobs.append(job(current(shipped)))
        roll_back(shipped)
    assert jobs == ["thrice", "again", "third", "second"]


def test_an_adapted_version_of_a_derived_one_is_replaced_by_the_next(shipped, new, tmp_path):
    base = install(shipped, new)
    for name in ("once", "twice"):
        install(shipped, other_version(shipped, tmp_path / name, name), derived_from=base)
    assert (job(current(shipped)), previous(shipped), len(installed(shipped))) == ("twice", base, 2)
    install(shipped, other_version(shipped, tmp_path / "other", "other"))
    for expected in ("twice", "second"):
        roll_back(shipped)
        assert job(current(shipped)) == expected


@pytest.mark.parametrize("kind", [str, PurePath])
def test_paths_may_be_strings_or_path_objects(shipped, new, kind):
    install(kind(shipped), kind(new))
    assert job(current(shipped)) == "second"
    roll_back(kind(shipped))
    assert current(shipped) == shipped
    with pytest.raises(MistifyError, match="no version before"):
        roll_back(kind(shipped))


def test_an_unexpected_current_version_is_not_replaced(shipped, new, tmp_path):
    assert install(shipped, new, expected=shipped) == current(shipped)
    newer = other_version(shipped, tmp_path / "newer", "third")
    with pytest.raises(MistifyError, match="another version") as caught:
        install(shipped, newer, expected=shipped)
    assert caught.value.code is ErrorCode.CONFLICT
    assert job(current(shipped)) == "second"
    assert len(installed(shipped)) == 1
    install(shipped, newer, expected=current(shipped))
    assert job(current(shipped)) == "third"


def test_a_model_warns_if_its_current_version_is_missing(shipped, new, caplog):
    version = install(shipped, new)
    load(shipped)
    assert not caplog.records
    shutil.rmtree(version)
    load(shipped)
    assert [record.getMessage() for record in caplog.records] == [
        f"{shipped} is used as it was shipped: {version}, the version that was current, is missing; "
        "install it again"
    ]


def test_a_model_does_not_warn_of_versions_of_a_package_that_was_replaced(shipped, new, caplog):
    shutil.rmtree(install(shipped, new))
    Manifest.load(shipped).model_copy(update={"job": "job-3"}).save(shipped)
    load(shipped)
    assert not caplog.records


def test_rollback_without_an_installed_version_is_an_error(shipped):
    with pytest.raises(MistifyError, match="no version before"):
        roll_back(shipped)
    assert not state_directory(shipped).exists()


def test_a_replaced_package_has_no_other_versions(shipped, new, tmp_path):
    install(shipped, new)
    Manifest.load(shipped).model_copy(update={"job": "update"}).save(shipped)
    assert current(shipped) == previous(shipped) == shipped
    install(shipped, other_version(shipped, tmp_path / "newer", "third"))
    assert job(current(shipped)) == "third"
    assert previous(shipped) == shipped
    assert len(installed(shipped)) == 1


@pytest.mark.parametrize("broken", ["serve.tflite", "manifest.json"])
def test_a_damaged_package_is_refused(shipped, new, tmp_path, broken):
    install(shipped, new)
    bad = other_version(shipped, tmp_path / "bad", "bad")
    (bad / broken).write_bytes((bad / broken).read_bytes()[:-9])
    with pytest.raises(MistifyError) as caught:
        install(shipped, bad)
    assert caught.value.code is ErrorCode.CORRUPT_PACKAGE
    assert job(current(shipped)) == "second"
    assert len(installed(shipped)) == 1


@pytest.mark.parametrize(
    ("side", "changed"),
    [("inputs", {"name": "audio"}), ("inputs", {"dtype": "int8"}), ("outputs", {"shape": [-1, 5]})],
)
def test_a_package_with_other_inputs_or_outputs_is_refused(shipped, new, side, changed):
    described = json.loads((new / "manifest.json").read_text())
    described[side][0] |= changed
    (new / "manifest.json").write_text(json.dumps(described))
    with pytest.raises(MistifyError, match=f"cannot take the place(.|\n)*{side}: got") as caught:
        install(shipped, new)
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert current(shipped) == shipped


CATS = {"scores": ("cat", "dog", "owl")}


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ({"labels": CATS}, {"labels": {"scores": ("dog", "cat", "owl")}}, "labels.scores"),
        ({"labels": CATS}, {"labels": {"scores": ("owl", "newt", "frog")}}, "labels.scores"),
        ({"task": TaskConfig(classes=("1", "2"))}, {"task": TaskConfig(classes=("1", "3"))}, "task"),
    ],
    ids=["other order", "other place", "other task"],
)
def test_a_package_with_other_classes_is_refused(shipped, new, before, after, place):
    change(shipped, **before)
    change(new, **after)
    with pytest.raises(MistifyError, match=rf"cannot take the place(.|\n)*{place}: got") as caught:
        install(shipped, new)
    assert caught.value.code is ErrorCode.INVALID_MODEL
    assert current(shipped) == shipped


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"labels": CATS}),
        ({"labels": CATS}, {}),
        ({"labels": CATS}, {"labels": {"scores": ("Katze", "dog", "owl")}}),
        ({"labels": {"scores": ("cat", "owl", "owl")}}, {"labels": {"scores": ("owl", "cat ", "owl")}}),
        ({"task": TaskConfig(classes=("1", "2"))}, {"task": TaskConfig(classes=("2", "1"))}),
        ({"task": TaskConfig(properties=("has",))}, {"task": TaskConfig(properties=("odd",))}),
    ],
    ids=["named", "unnamed", "renamed", "ambiguous", "same task", "properties"],
)
def test_classes_may_be_renamed(shipped, new, before, after):
    change(shipped, **before)
    change(new, **after)
    install(shipped, new)
    assert job(current(shipped)) == "second"


def change(package, **changes):
    Manifest.load(package).model_copy(update=changes).save(package)


def test_a_full_disk_keeps_the_previous_version(shipped, new, tmp_path):
    install(shipped, new)
    newer = other_version(shipped, tmp_path / "newer", "third")
    with pytest.raises(OSError, match="too large") as caught, files_limited_to(1000):
        install(shipped, newer)
    assert caught.value.errno == errno.EFBIG
    assert job(current(shipped)) == "second"
    assert len(installed(shipped)) == 1
    install(shipped, newer)
    assert job(current(shipped)) == "third"


@pytest.mark.parametrize("fault", ["crash", "error"])
def test_a_crash_or_error_at_any_step_leaves_a_complete_version(shipped, new, tmp_path, fault):
    install(shipped, new)
    newer = other_version(shipped, tmp_path / "newer", "third")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    steps = int(subprocess.check_output([sys.executable, "-c", FAULTS, shipped, newer, scratch, fault]))
    assert steps > 20
    actual = set()
    for step in range(steps):
        package = scratch / str(step) / shipped.name
        actual.add(job(current(package)))
        assert content(package) == content(shipped)
        install(package, newer)
        assert job(current(package)) == "third"
        assert len(installed(package)) <= 2
    assert actual == {"second", "third"}


def test_concurrent_installations_take_turns(shipped, new, tmp_path):
    newer = other_version(shipped, tmp_path / "newer", "third")
    processes = [
        subprocess.Popen([sys.executable, "-c", INSTALL, shipped, version]) for version in (new, newer)
    ]
    assert [process.wait() for process in processes] == [0, 0]
    assert job(current(shipped)) in ("second", "third")
    assert job(previous(shipped)) in ("second", "third")
    assert Switchboard.open(state_directory(shipped)).generation == 20
    assert len(installed(shipped)) == 2


def test_other_users_can_read_an_installed_version(shipped, new):
    install(shipped, new)
    assert os.stat(current(shipped)).st_mode & 0o555 == 0o555
