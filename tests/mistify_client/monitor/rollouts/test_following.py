"""A device installs the packages that roll-outs want, and takes them back."""

from dataclasses import replace
from errno import EIO, ENOSPC

import numpy as np
import pytest

from mistify.ed25519 import PrivateKey
from mistify.errors import ErrorCode, MistifyError
from mistify.package.verification import verify
from mistify.rollouts import InstallationPhase, Instruction
from mistify_client.monitor.config import MonitorConfig, load_config
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.replacement.candidate import Trial
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from mistify_client.runtime.trust import Trust
from mistify_client.runtime.versions import current, install, previous, roll_back
from tests.mistify_client.monitor.adapting import held
from tests.support.tiny_packages import COMPARISON, IMAGE, PAIR, SCORES, make_package

WHOLE_WAY = ["downloading", "validating", "installing", "installed"]

PINNED, OTHER = PrivateKey.generate(), PrivateKey.generate()

#: What passes: no server has the missing blocks of the current package, or the disk is full.
TROUBLES = [MistifyError(ErrorCode.UNAVAILABLE, "no server answers"), OSError(ENOSPC, "the disk is full")]


def installed(site, instruction):
    """Install a package with a follower, and return the follower."""
    follower = site.daemon() if site.follower is None else site.follower
    follower.follow(instruction)
    site.until("installed")
    site.finish()
    return follower


def test_a_wanted_package_is_installed_once(site, package):
    instruction = site.offer()
    follower = site.daemon()
    assert follower.report.installation is None
    for _ in range(9):
        site.observe(4.0)
    follower.follow(instruction)
    reason = site.until("installed")
    assert site.phases == WHOLE_WAY
    assert "with the current package" in reason
    assert verify(current(package)).goal == "phone-2"
    assert previous(package) == package
    report = follower.report
    assert (report.package, report.installation.phase) == ("half", InstallationPhase.INSTALLED)
    assert (report.installation.rollout, report.installation.before_ms) == ("r2", 4.0)
    site.finish()
    follower.follow(instruction)
    site.observe(5.0)
    site.observe(7.0)
    assert follower.report.measured_ms == 6.0
    assert site.phases == WHOLE_WAY
    assert not site.state.rollout_candidate.exists()


def test_it_is_taken_back_when_the_roll_out_was_stopped(site, package):
    installed(site, site.offer())
    site.follower.follow(Instruction(withdrawn="another"))
    assert site.follower.installation.phase is InstallationPhase.INSTALLED
    site.follower.follow(Instruction(withdrawn="r2"))
    site.until("rolled back")
    assert current(package) == package
    site.follower.follow(Instruction(withdrawn="r2"))
    assert site.follower.installation.phase is InstallationPhase.ROLLED_BACK


def test_a_restored_server_may_want_a_package_again_that_it_had_stopped(site, package):
    wanted = site.offer()
    installed(site, wanted)
    site.follower.follow(Instruction(withdrawn="r2"))
    site.until("rolled back")
    assert current(package) == package
    installed(site, wanted)
    assert site.goal == "phone-2"
    assert site.phases == [*WHOLE_WAY, "rolling back", "rolled back", *WHOLE_WAY]


def test_a_device_returns_to_the_package_of_the_roll_out_before(site, package):
    first = site.offer()
    installed(site, first)
    installed(site, site.offer("phone-3", "r3"))
    assert site.goal == "phone-3"
    site.follower.follow(Instruction(withdrawn="r3"))
    site.until("rolled back")
    site.finish()
    assert site.goal == "phone-2"
    site.follower.follow(first)
    assert site.entries.until(phase="installed")["reason"] == "it runs already"
    site.follower.follow(Instruction(withdrawn="r2"))
    site.until("rolled back")
    assert current(package) == package


def test_a_package_that_ran_before_stays_when_its_roll_out_ends(site, other_version):
    site.daemon().follow(site.offer())
    assert site.entries.until(phase="installed")["reason"] == "it runs already"
    site.follower.follow(Instruction(withdrawn="r2"))
    site.until("rolled back")
    site.finish()
    assert current(site.package) == other_version


@pytest.fixture
def other_version(site, tmp_path):
    """Return a version for the goal of the roll-out that something else has installed."""
    site.offer()
    directory = tmp_path / "other"
    directory.mkdir()
    for name, content in site.service.fake.files.items():
        (directory / name).write_bytes(content)
    return install(site.package, directory)


@pytest.mark.parametrize(
    ("key", "reason"),
    [(None, "no signature"), (OTHER, f"a signature by {OTHER.public}")],
    ids=["none", "other"],
)
def test_a_package_of_another_server_is_refused(site, package, key, reason):
    site.trust, site.key = Trust.of([PINNED.public], "trusted"), key
    site.daemon().follow(site.offer())
    assert reason in site.until("failed")
    assert current(package) == package
    assert not site.state.rollout_candidate.exists()


def test_a_package_of_the_trusted_server_is_installed(site, package):
    site.trust, site.key = Trust.of([PINNED.public], "trusted"), PINNED
    installed(site, site.offer())
    assert (current(package) / "signature.json").exists()


def test_another_package_than_the_announced_one_is_refused(site, package):
    site.daemon().follow(site.offer(digest="7" * 64))
    assert "the roll-out is of 7777" in site.until("failed")
    assert current(package) == package


def test_a_package_with_other_inputs_is_refused(site, package, data, tmp_path):
    made = make_package(tmp_path / "two", data / "tiny_two.tflite", PAIR, COMPARISON)
    files = {path.name: path.read_bytes() for path in made.iterdir()}
    site.daemon().follow(site.offer(made=files))
    assert "cannot take the place of the package" in site.until("failed")
    assert current(package) == package


def test_a_package_that_the_server_has_no_more_is_an_error(site, package):
    instruction = site.offer()
    site.service.fake.job = replace(site.service.fake.job, id="another")
    site.daemon().follow(instruction)
    assert "there is no job" in site.until("failed")
    assert current(package) == package


def test_the_agreement_on_the_examples_is_reported(site, tmp_path):
    images = np.random.default_rng(3).normal(size=(8, 4, 4, 1)).astype(np.float32)
    np.savez(tmp_path / "examples.npz", image=images)
    site.daemon(examples=tmp_path / "examples.npz").follow(site.offer())
    assert "both agree on 100% of the examples" in site.until("installed")
    assert site.follower.report.installation.agreement == 1.0


def test_low_agreement_is_for_the_server_to_judge(site):
    site.run_trial = lambda *_: Trial(0.1, 0.1, 0.25)
    site.daemon().follow(site.offer())
    site.until("installed")
    assert site.follower.report.installation.agreement == 0.25


def test_a_server_that_cannot_be_reached_is_tried_again(site, package):
    instruction = site.offer()
    site.service.stop()
    site.daemon().follow(instruction)
    site.observe()
    assert "no server answers" in site.entries.until(event="problem", about="roll-out")["reason"]
    assert current(package) == package
    site.service.start()
    site.entries.until(phase="installed")
    assert verify(current(package)).goal == "phone-2"


@pytest.mark.parametrize("phase", ["downloading", "validating", "installing"])
def test_a_daemon_that_was_killed_is_continued_by_the_next(site, package, phase):
    """The record is written as it was when the daemon was killed before the end of a phase."""
    instruction = site.offer()
    records = {}
    save = site.daemon()._ledger.save

    def recording(installation):
        save(installation)
        records[installation.phase.value] = site.state.rollout.read_bytes()

    site.follower._ledger.save = recording
    site.follower.follow(instruction)
    site.until("installed")
    site.finish()
    site.stop()
    site.state.rollout.write_bytes(records[phase])
    if phase != "installing":  # otherwise, the version is installed already, but not recorded as such
        roll_back(package)
        site.state.rollout_candidate.mkdir()
        for name, content in site.service.fake.files.items():
            (site.state.rollout_candidate / name).write_bytes(content)
    site.entries.read.clear()
    site.daemon()
    site.until("installed")
    assert verify(current(package)).goal == "phone-2"
    site.follower.follow(Instruction(withdrawn="r2"))
    site.until("rolled back")
    assert current(package) == package


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_trials_that_crash_the_daemon_end(site, package):
    instruction = site.offer()
    for _ in range(3):

        def crash(*_):
            raise SystemExit

        site.run_trial = crash
        follower = site.daemon()
        follower.follow(instruction)
        site.observe()
        site.finish()
    site.run_trial = lambda *_: Trial(0.1, 0.1, None)
    site.daemon()
    assert site.until("failed") == "3 trials have begun, and none has succeeded"
    assert current(package) == package


@pytest.mark.parametrize("trouble", TROUBLES, ids=["server", "disk"])
def test_trials_that_could_not_take_place_do_not_count(site, package, trouble):
    attempts = []

    def interrupted(*paths):
        attempts.append(paths)
        if len(attempts) <= 5:
            raise trouble
        return Trial(0.1, 0.1, None)

    site.run_trial = interrupted
    site.daemon().follow(site.offer())
    site.until("installed")
    assert len(attempts) == 6
    assert current(package) != package


def test_trials_that_cannot_read_or_write_are_not_repeated_forever(site, package):
    attempts = []

    def unreadable(*paths):
        attempts.append(paths)
        raise OSError(EIO, "Input/output error")

    site.run_trial = unreadable
    site.daemon().follow(site.offer())
    assert "3 trials have begun" in site.until("failed")
    assert (len(attempts), current(package)) == (3, package)


def test_a_download_that_can_never_be_written_is_given_up(site, package):
    site.state.directory.mkdir(parents=True)
    site.state.rollout_candidate.write_text("no directory")
    site.daemon().follow(site.offer())
    assert site.until("failed").endswith(", after 20 attempts")
    assert current(package) == package


def test_a_roll_out_that_stops_during_the_download_installs_nothing(site, service, package):
    instruction = site.offer()
    with held(service.fake, "FetchPackage") as gate:
        site.daemon().follow(instruction)
        site.observe()
        assert gate.reached.wait(180)
        site.follower.follow(Instruction(withdrawn="r2"))
    site.until("rolled back")
    site.finish()
    assert current(package) == package
    assert site.phases == ["downloading", "rolling back", "rolled back"]


def test_a_package_that_no_app_can_load_is_taken_back_as_an_error(site, package):
    installed(site, site.offer())
    for second in range(120):
        site.observe(outdated_at=1000.0 + second)
    assert site.follower.installation.phase is InstallationPhase.INSTALLED
    site.observe(outdated_at=1121.0)
    assert "no app has loaded it" in site.until("failed")
    assert current(package) == package


def test_a_version_that_was_installed_later_stays(site, tmp_path, data):
    installed(site, site.offer())
    later = install(site.package, make_package(tmp_path / "later", data / "tiny.tflite", (IMAGE,), (SCORES,)))
    site.follower.follow(Instruction(withdrawn="r2"))
    site.until("rolled back")
    assert current(site.package) == later


def test_a_damaged_record_starts_empty(site):
    installed(site, site.offer())
    site.state.rollout.write_text("{")
    assert site.daemon().installation is None


def test_roll_outs_are_off_unless_the_config_names_the_package(package, tmp_path):
    state = MonitorState.of(package)
    state.directory.mkdir(parents=True)
    config = MonitorConfig.model_validate({"fleet": {"server": "127.0.0.1:1"}})
    monitor = Monitor(package, lambda: config, Journal(state.log, None), sensor=SensorReading)
    assert monitor._follower is None
    monitor.close()
    config = MonitorConfig.model_validate(
        {"fleet": {"server": "127.0.0.1:1", "rollouts": {"package": "watch"}}}
    )
    with pytest.raises(MistifyError, match=r'fleet\.rollouts\.package: got "watch"; expected "half"'):
        Monitor(package, lambda: config, Journal(state.log, None), sensor=SensorReading)
    (tmp_path / "monitor.toml").write_text(
        '[fleet]\nserver = "127.0.0.1:1"\n[fleet.rollouts]\npackage = "half"\nexamples = "examples.npz"\n'
    )
    fleet = load_config(tmp_path / "monitor.toml").fleet
    assert fleet.rollouts.examples == tmp_path / "examples.npz"
    config = MonitorConfig(fleet=fleet)
    with pytest.raises(MistifyError, match=r"examples\.npz"):
        Monitor(package, lambda: config, Journal(state.log, None), sensor=SensorReading)
