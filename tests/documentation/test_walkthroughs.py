"""README and tutorials are executed as written, except for the steps listed here with a reason."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import pytest
from sklearn.datasets import load_digits

from executors.contract.registry import algorithm
from executors.outputs.plugged_in import plugged_in, plugged_in_loss
from mistify.config.data.metric import Metric
from mistify.config.reading import OF_ANY_JOB, parse_batch
from mistify.package.option_kinds import OptionKind
from mistify_client.assembly.engine import Engine
from mistify_client.monitor.policies.base import Situation, make_policy
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.options import Option, OptionCosts, OptionScore
from tests.documentation.walkthroughs import Walkthrough, snippets_of, words_of
from tests.support.paths import REPOSITORY
from tests.support.plug_ins import environment

EXTENDING = "docs/extending.md"
FACTORY = "docs/nnfactory.md"
ADAPTATION = "docs/adaptation.md"

_INSTALLS = "installs into the reader's environment; .ci/run does this"
_CLIENT_ALONE = "tests/mistify_client/test_client_only.py installs only the client"

#: Steps that are skipped, by page and by command or first line, with the reason.
SKIPPED: Mapping[str, Mapping[str, str]] = {
    "README.md": {
        "make install && source .venv/bin/activate": _INSTALLS,
        "make demo": f"{_INSTALLS}, and tests/end_to_end/test_recovery.py ports the same goals",
        "make test": "runs this test",
        "job 20261130-223757-56c34916, 7 goals": "output of an earlier make demo",
        "pip wheel --no-deps --wheel-dir dist .": _CLIENT_ALONE,
        "pip install './mistify_porting-0.1.0-py3-none-any.whl[client]'": _CLIENT_ALONE,
        "mistify port configs/resnet8_cifar10.json --data-root DATA --out out": (
            "needs external data: tests/end_to_end/test_resnet8_cifar10.py ports it if the data is available"
        ),
    },
    "docs/first-hour.md": {},
    FACTORY: {"{": "the beginning of a file that a command of the page writes"},
    ADAPTATION: {},
    EXTENDING: {
        "pytest -q -m '' tests/executors/contract tests/mistify_client/monitor/policies": (
            "takes minutes and needs a checkout; test_algorithm_and_policy_pass_the_contract_tests runs it"
        ),
    },
    "docs/pytorch.md": {
        "pip install torch": _INSTALLS,
    },
    "docs/tutorials/engineer.md": {},
    "docs/tutorials/app-developer.md": {},
    "docs/tutorials/http.md": {},
    "docs/tutorials/operator.md": {
        "mistify profile-device --name my-board --server 127.0.0.1:7465 --token-file token": (
            "takes three minutes: tests/end_to_end/test_devices.py measures a device"
        ),
    },
}


def follow(page: str, directory: Path, environment: Mapping[str, str] | None = None) -> None:
    with Walkthrough(directory, SKIPPED[page], environment) as walkthrough:
        walkthrough.follow(REPOSITORY / page)


def test_every_tutorial_has_a_test() -> None:
    tutorials = {str(page.relative_to(REPOSITORY)) for page in REPOSITORY.glob("docs/tutorials/*.md")}
    assert tutorials <= SKIPPED.keys()
    assert len(tutorials) == 4


@pytest.mark.parametrize("page", SKIPPED)
def test_every_snippet_is_executed_or_listed(page: str) -> None:
    snippets = snippets_of(REPOSITORY / page)
    unclear = {snippet.names[0] for snippet in snippets if not snippet.can_be_followed}
    assert unclear <= SKIPPED[page].keys()
    names = {name for snippet in snippets for name in snippet.names}
    assert SKIPPED[page].keys() <= names
    assert len(names) > 5


@pytest.mark.parametrize("page", SKIPPED)
def test_every_saved_config_is_valid(page: str) -> None:
    """Deliberately wrong configs have names that say so. Goals for a job may leave its model and data out."""
    for snippet in snippets_of(REPOSITORY / page):
        if snippet.file is not None and snippet.file.endswith(".json") and "wrong" not in snippet.file:
            assert parse_batch(snippet.text, snippet.file, server_knows_more=True, common=OF_ANY_JOB)


def test_numbers_are_ignored_in_comparisons() -> None:
    assert words_of("phone: met,  accuracy 93.7%, 21.6us") == words_of("phone: met, accuracy 8%, 2ms")
    assert words_of("met, accuracy 93.7%") != words_of("unmet, accuracy 93.7%")


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("one\n\n```console\n$ echo one\ntwo\n```\n", "two"),
        ("one\n\n```console\n$ false\n```\n", "false"),
        ("one\n\n```console\n$ true  # exit code 2\n```\n", "true"),
        ("one\n\n```\nsomething\n```\n", "something"),
    ],
)
def test_wrong_output_on_a_page_is_detected(tmp_path: Path, page: str, reason: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(page)
    with Walkthrough(tmp_path, {}) as walkthrough, pytest.raises(AssertionError, match=reason):
        walkthrough.follow(path)


def test_a_page_is_executed_in_order(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "Save this as `a.txt`:\n\n```text\none 1\n```\n\n"
        "then\n\n```console\n$ cat \\\n    a.txt\n...\none 2\n$ rm a.txt  # a comment\n"
        "$ test -e a.txt  # exit code 1\n$ no such command\n```\n"
    )
    with Walkthrough(tmp_path, {"no such command": "there is none"}) as walkthrough:
        walkthrough.follow(path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_first_hour_works(tmp_path: Path) -> None:
    follow("docs/first-hour.md", tmp_path)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    # A plain convolutional network with default settings keeps its accuracy.
    assert report["source"]["accuracy"] > 0.85
    assert all(goal["achieved"]["accuracy_change"] > -0.08 for goal in report["goals"])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tutorial_for_engineers_works(tmp_path: Path) -> None:
    follow("docs/tutorials/engineer.md", tmp_path)
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {goal["id"]: goal["quantization"]["precision"] for goal in report["goals"]}["badge"] != "none"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_page_on_pytorch_works(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    follow("docs/pytorch.md", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tutorial_for_app_developers_works(tmp_path: Path) -> None:
    follow("docs/tutorials/app-developer.md", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tutorial_over_http_works(tmp_path: Path) -> None:
    follow("docs/tutorials/http.md", tmp_path)
    assert (tmp_path / "packages" / "half" / "serve.tflite").exists()
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tutorial_for_operators_works(tmp_path: Path) -> None:
    follow("docs/tutorials/operator.md", tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tutorial_of_networks_for_many_tasks_works(tmp_path: Path) -> None:
    """The command that writes the data is of a checkout."""
    follow(FACTORY, tmp_path, {"PYTHONPATH": str(REPOSITORY)})
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {goal["id"]: goal["met"] for goal in report["goals"]}["one-odd"]
    assert all(goal["achieved"]["accuracy"] > 0.85 for goal in report["goals"])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_camera_with_a_dirty_lens_works(tmp_path: Path) -> None:
    follow(ADAPTATION, tmp_path)
    history = (tmp_path / "out/goals/camera.state/adaptation/history.jsonl").read_text().splitlines()
    events = [json.loads(line)["event"] for line in history]
    assert (events[0], events[-1]) == ("installed", "restored")


def installing_into(site: Path) -> dict[str, str]:
    """Return an environment in which pip installs into a directory that Python searches as well."""
    return {
        "PYTHONPATH": str(site),
        "PIP_TARGET": str(site),
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this as --build-isolation=0
    }


@pytest.fixture(scope="module")
def plug_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package of docs/extending.md with the command on that page."""
    directory = tmp_path_factory.mktemp("plug-ins")
    names = [name for snippet in snippets_of(REPOSITORY / EXTENDING) for name in snippet.names]
    skipped = dict.fromkeys(names, "") | SKIPPED[EXTENDING]
    del skipped["pip install --quiet ./plugins"]
    with Walkthrough(directory, skipped, installing_into(directory / "site")) as walkthrough:
        walkthrough.follow(REPOSITORY / EXTENDING)
    return directory / "site"


def test_each_plug_in_is_found_and_works_as_described(
    plug_ins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(plug_ins)
    assert algorithm("smallest_norm").params().steps == 50
    worst = plugged_in(Metric("worst_class"))
    scores = np.eye(3)[[0, 0, 1, 2]]
    assert worst.score(scores, np.array([0, 0, 1, 1])) == 0.5
    focal = float(plugged_in_loss("focal").loss(scores[:, :2] * 0.5, np.array([0, 0, 1, 1]), np.ones(4, "f")))
    assert focal == pytest.approx((3 * 0.25 * np.log(2) + np.log(1e7)) / 4, rel=1e-3)
    policy = make_policy({"name": "thrifty", "battery": 0.5})
    options = tuple(
        Option(OptionKind.BRANCH, name, Engine(), OptionCosts(latency_ms), OptionScore(accuracy))
        for name, latency_ms, accuracy in (("fast", 1.0, 0.7), ("good", 5.0, 0.9))
    )
    expected = ((0.4, "9ms", "fast"), (0.6, "9ms", "good"), (0.6, "4ms", "fast"), (None, "0.1ms", "fast"))
    for battery, latency, chosen in expected:
        reading, targets = SensorReading(battery=battery), Targets(latency=latency)
        situation = Situation(9.0, "fast", 0.0, options, 1.0, False, reading, reading, targets)
        decision = policy.decide(situation)
        assert (decision.option, decision.fits) == (chosen, latency != "0.1ms")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_algorithm_and_policy_pass_the_contract_tests(plug_ins: Path) -> None:
    tests = ["tests/executors/contract", "tests/mistify_client/monitor/policies/test_base.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-k", "smallest_norm or thrifty", *tests]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment(plug_ins), check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert "16 passed" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_page_on_plug_ins_works(tmp_path: Path) -> None:
    follow(EXTENDING, tmp_path, installing_into(tmp_path / "site"))
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    (goal,) = report["goals"]
    limits = {"activations": 0.8, "flops": 0.6}
    assert all(goal["achieved"][axis] <= share * report["source"][axis] for axis, share in limits.items())


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_commands_in_the_readme_work(tmp_path: Path) -> None:
    """With the user's own model and data."""
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 1))
    x = keras.layers.Conv2D(16, 3, activation="relu")(image)
    x = keras.layers.Conv2D(32, 3, activation="relu")(x)
    x = keras.layers.Dense(10, activation="softmax")(keras.layers.GlobalAveragePooling2D()(x))
    keras.Model(image, x).save(tmp_path / "my_model.keras")
    digits = load_digits()
    images = digits.images[..., None].astype(np.float32) / 16
    for name, part in {"train": slice(1400), "test": slice(1400, None)}.items():
        np.savez(tmp_path / f"{name}.npz", x=images[part], y=digits.target[part])
    follow("README.md", tmp_path)
