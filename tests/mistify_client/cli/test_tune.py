"""End-to-end tests of `mistify tune`."""

import shutil
import subprocess
from mmap import PAGESIZE

import numpy as np
import pytest
from typer.testing import CliRunner

import mistify_client
from benchmarks.tuning import fleet
from mistify.config.data.metric import Metric
from mistify.errors import ErrorCode, MistifyError
from mistify.package.manifest import Manifest
from mistify.package.verification import verify
from mistify.peers.hints import Hints
from mistify_client.cli.main import app
from mistify_client.runtime.versions import current
from mistify_client.tuning import Examples
from mistify_client.tuning.config import hints_of, read_tuning_file
from mistify_client.tuning.training_loop import TrainingSettings
from mistify_server.store.directory import open_store
from tests.mistify_client.tuning.devices import examples
from tests.support.servers import MISTIFY

SETTINGS = 'group = "cameras"\npatience = 2\nlearning_rate = 0.01\n[hints]\nview_degrees = 90\n'

#: Runs a command with only two free pages on a disk, then lists the files that it left there.
FULL_DISK = """
mount -t tmpfs -o nr_blocks=2 tmpfs "$0" && "$@"
ended=$?
find "$0" -mindepth 1 -printf "left: %P\\n"
exit $ended
"""

#: A private mount that ends with the command.
PRIVATE_MOUNTS = "unshare --mount --map-root-user"


@pytest.fixture
def settings(tmp_path):
    def write(text):
        path = tmp_path / "tuning.toml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def tune(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("MISTIFY_SERVER", raising=False)

    def run(device, *args):
        np.savez(
            tmp_path / "data.npz", x=device.examples.inputs["image"], y=device.examples.targets["scores"]
        )
        command = ["tune", "--package", device.package, "--data", tmp_path / "data.npz", *args]
        return CliRunner().invoke(app, [str(arg) for arg in command])

    return run


def test_a_device_tunes_without_peers(tune, device, settings):
    """The device's labels are permuted, so that there is much to learn."""
    own = device(0)
    own.examples.targets["scores"][:] = (own.examples.targets["scores"] + 1) % 3
    result = tune(own, "--config", settings("rehearsal = 0\n" + SETTINGS.replace("0.01", "0.05")))
    assert result.exit_code == 0, result.output
    assert "accuracy on held-out examples: " in result.output
    assert f"installed: {current(own.package)}" in result.output.replace("\n", "")


def test_forgetting_is_reported_as_a_warning(tune, device, settings, tmp_path):
    """The device's labels are permuted, while the examples to keep have the original labels."""
    own = device(0)
    images = examples(9, 300).inputs["image"]
    answers = mistify_client.load(own.package)(images).argmax(1)
    np.savez(tmp_path / "keep.npz", x=images, y=answers)
    shifted = (own.examples.targets["scores"] + 1) % 3
    own.examples.targets["scores"][:] = shifted
    arguments = [
        "--config",
        settings("rehearsal = 0\n" + SETTINGS.replace("0.01", "0.05")),
        "--keep",
        tmp_path / "keep.npz",
    ]
    result = tune(own, *arguments)
    assert result.exit_code == 0, result.output
    assert "on the examples to keep: accuracy 100.0%, loss " in result.output
    assert "warning: accuracy on the 300 examples to keep fell from 100.0% to " in result.output


def test_unsuitable_examples_to_keep_are_refused(tune, device, tmp_path):
    np.savez(tmp_path / "keep.npz", x=np.zeros((3, 4, 4, 1), np.float32))
    result = tune(device(0), "--keep", tmp_path / "keep.npz")
    assert result.exit_code == 2
    assert "keep.npz: scores: got nothing" in result.output


def test_tuning_a_regression_model_keeps_the_error_of_the_ported_package(data, tmp_path):
    """Neither the output nor the manifest contains an accuracy."""
    package = shutil.copytree(data / "trainable_figures", tmp_path / "package")
    images = np.random.default_rng(1).uniform(size=(200, 4, 4, 1)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=images, y=images.mean((2, 3))[:, :2])
    result = CliRunner().invoke(
        app, ["tune", "--package", str(package), "--data", str(tmp_path / "data.npz")], env={"COLUMNS": "140"}
    )
    assert result.exit_code == 0, result.output
    assert "loss: " in result.output
    assert "accuracy" not in result.output
    ported, tuned = Manifest.load(package), verify(current(package))
    assert tuned.tuned_from == ported.files["serve.tflite"].sha256
    assert tuned.metric is Metric.MSE
    assert (tuned.accuracy, tuned.accuracy_examples) == (ported.accuracy, ported.accuracy_examples)
    assert ported.accuracy > 0


def test_devices_tune_with_peers(tune, device, settings, address):
    device(1).tune(address)
    result = tune(device(0), "--server", address, "--config", settings(SETTINGS))
    assert result.exit_code == 0, result.output
    assert "round 1: learning from 1 peer" in result.output
    assert "bytes sent" in result.output


@pytest.mark.skipif(
    subprocess.call(["sh", "-c", f"{PRIVATE_MOUNTS} mount -t tmpfs tmpfs ."]) != 0,
    reason="nothing can be mounted",
)
def test_a_full_disk_only_disables_the_peers(device, settings, address, tmp_path):
    """The outputs of a peer, three numbers of 4 bytes per example, take more than three pages."""
    device(1).tune(address)
    own = device(0, count=PAGESIZE // 4)
    data, outputs = tmp_path / "data.npz", own.state / "outputs"
    np.savez(data, x=own.examples.inputs["image"], y=own.examples.targets["scores"])
    outputs.mkdir(parents=True)
    command = [MISTIFY, "tune", "--package", own.package, "--data", data, "--server", address]
    result = subprocess.run(
        [*PRIVATE_MOUNTS.split(), "sh", "-c", FULL_DISK, outputs, *command, "--config", settings(SETTINGS)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    full = f"{outputs / own.examples.digest} cannot be written (No space left on device); free space"
    assert f"note: continuing without peers: {full}" in result.stdout
    left = [line for line in result.stdout.splitlines() if line.startswith("left: ")]
    assert left == [f"left: {own.examples.digest}"]


def test_ctrl_c_prints_how_to_continue(tune, device, monkeypatch):
    own = device(0)

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("mistify_client.cli.tune.tune", interrupted)
    result = tune(own)
    assert result.exit_code == 130
    assert "continues after the last pass" in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "group: got nothing; expected the name of a group"),
        ('group = "a"\npeers = 0', "peers: got 0; expected 1 to 64"),
        ('group = "a"\nlearning_rat = 1', 'did you mean "learning_rate"?'),
        ('group = "a"\n[privacy]\nlower = 0\nupper = 1\nunit = "value"\nbudget = 5', "privacy.epsilon"),
        ('group = "a"\n[privacy]\nlower = 2\nupper = 1\nunit = "value"\nepsilon = 1\nbudget = 5', "bounds 2"),
        ("group", "not valid TOML"),
    ],
)
def test_mistakes_in_the_settings_file_are_reported(settings, text, message):
    with pytest.raises(MistifyError) as caught:
        read_tuning_file(settings(text))
    assert message in str(caught.value)


def test_the_settings_of_the_training_come_from_the_file(settings):
    text = 'group = "a"\nlearning_rate = 0.01\npatience = 2\nmost_passes = 7\nrehearsal = 0.5'
    expected = TrainingSettings(learning_rate=0.01, patience=2, most_passes=7, rehearsal=0.5)
    assert read_tuning_file(settings(text)).training_settings() == expected


def test_the_counts_of_labels_that_are_protected_are_not_sent(settings):
    privacy = '[privacy]\nlower = 0\nupper = 1\nunit = "value"\nepsilon = 1\nbudget = 5\n'
    counted = 'group = "a"\nhints = { labels = "counted" }\n'
    assert read_tuning_file(settings(counted + privacy)).hints == {"labels": "counted"}
    with pytest.raises(MistifyError) as caught:
        read_tuning_file(settings(f"{counted}{privacy}label_epsilon = 1"))
    assert 'hints.labels: got "counted"; expected no exact counts of the labels' in str(caught.value)
    shares = counted.replace('"counted"', "[0.5, 0.5]")
    assert read_tuning_file(settings(f"{shares}{privacy}label_epsilon = 1")).privacy.label_epsilon == 1


def test_a_server_needs_a_group(tune, device):
    result = tune(device(0), "--server", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "--config" in result.output


def test_invalid_data_is_reported(tune, device, address, settings):
    own = device(0)
    own.examples.targets["scores"][0] = 7
    result = tune(own, "--server", address, "--config", settings(SETTINGS))
    assert result.exit_code == 2
    assert "classes from 0 to 7" in result.output


def test_the_ledger_is_written_to_the_configured_path(settings, tmp_path):
    privacy = '[privacy]\nlower = 0\nupper = 1\nunit = "value"\nepsilon = 4\nbudget = 5\nledger = "spent"'
    assert read_tuning_file(settings(f"{SETTINGS}{privacy}")).privacy.ledger == tmp_path / "spent"


def test_label_counts_are_sent_as_hints_if_configured(data):
    manifest = Manifest.load(data / "trainable")
    counted = examples(1, 40)
    counted.targets["scores"][:] = [0] * 10 + [2] * 20 + [-1] * 10
    hints = hints_of({"view_degrees": 5, "labels": "counted"}, counted, manifest, manifest.training)
    assert hints == Hints(view_degrees=5, labels=(1 / 3, 0, 2 / 3))
    assert hints_of({"view_degrees": 5}, counted, manifest, manifest.training) == Hints(view_degrees=5)
    counted.targets["scores"][:] = -1
    with pytest.raises(MistifyError, match=r"hints\.labels"):
        hints_of({"labels": "counted"}, counted, manifest, manifest.training)


def test_label_counts_do_not_depend_on_the_integer_type(data):
    manifest, counted = Manifest.load(data / "trainable"), examples(1, 40)
    unsigned = Examples(counted.inputs, {"scores": counted.targets["scores"].astype(np.uint64)})
    expected = hints_of({"labels": "counted"}, counted, manifest, manifest.training)
    assert hints_of({"labels": "counted"}, unsigned, manifest, manifest.training) == expected


def test_published_weights_can_be_withdrawn(tune, device, settings, address, store):
    own, settings = device(0), settings(SETTINGS)
    command = ["withdraw", "--package", str(own.package), "--server", address, "--config", str(settings)]
    never = CliRunner().invoke(app, command)
    assert never.exit_code == ErrorCode.NOT_FOUND.exit_code
    assert "was never tuned with peers" in never.output
    assert tune(own, "--server", address, "--config", settings).exit_code == 0
    with open_store(store) as opened:
        assert len(opened.tuning.publications(fleet.GROUP)) == 1
        for _ in range(2):
            result = CliRunner().invoke(app, command)
            assert result.exit_code == 0, result.output
            assert not opened.tuning.publications(fleet.GROUP)
            assert list(opened.weights.names()) == []
