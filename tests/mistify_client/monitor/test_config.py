import json
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.monitor.config import ReplacementConfig, goal_template, load_config
from mistify_client.monitor.state.targets import Targets
from tests.support.paths import REPOSITORY
from tests.support.tokens import write_token

GOAL = {
    "id": "phone",
    "model": "digits-resnet",
    "dataset": {"train": "train.npz", "test": "test.npz"},
    "adaptation_goal": {"latency": "20ms"},
}


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        (tmp_path / "goal.json").write_text(json.dumps(GOAL))
        path = tmp_path / "monitor.toml"
        path.write_text(text)
        return path

    return write


REPLACEMENT = '[replacement]\nserver = "127.0.0.1:7465"\ngoal = "goal.json"\n'


REPORTING = '[reporting]\nserver = "127.0.0.1:7465"\ndevice = "my-board"\n'


def test_everything_has_a_default(write):
    config = load_config(write(""))
    assert (config.interval, config.targets, config.replacement) == (0.25, Targets(), None)


def test_a_complete_config_is_read(write, tmp_path):
    write_token(tmp_path / "token", "secret\n")
    text = 'interval = "100ms"\n[targets]\nlatency = "20ms"\n[policy]\ndwell = "5s"\n'
    config = load_config(write(text + REPLACEMENT + 'after = "2min"\njob = "j"\ntoken_file = "token"\n'))
    assert (config.interval, config.targets.latency) == (0.1, 20.0)
    assert config.replacement.after == 120.0
    assert config.replacement.goal == tmp_path / "goal.json"
    assert config.replacement.token_file == tmp_path / "token"


def test_reporting_settings_are_read(write, tmp_path):
    write_token(tmp_path / "token", "secret\n")
    reporting = load_config(write(REPORTING + 'token_file = "token"\n')).reporting
    assert (reporting.device, reporting.free) == ("my-board", 0.9)
    assert reporting.token_file == tmp_path / "token"


def test_the_example_config_is_valid():
    configs = REPOSITORY / "configs"
    config = load_config(configs / "monitor.toml")
    assert config.targets.latency is not None
    assert goal_template(config.replacement).id


def test_the_example_config_with_weights_is_valid_with_figures_and_with_comparisons(tmp_path):
    example = (REPOSITORY / "configs" / "contextual.toml").read_text()
    lines = example.splitlines()
    compared = [line.removeprefix("# ") for line in lines if not line.startswith("importance")]
    for text in (example, "\n".join(compared[2:])):
        path = tmp_path / "contextual.toml"
        path.write_text(text)
        assert load_config(path).policy["name"] == "contextual"
    assert "comparisons" in load_config(path).policy


def test_a_goal_added_to_a_job_may_omit_the_settings_of_the_job(write, tmp_path):
    path = write(REPLACEMENT)
    (tmp_path / "goal.json").write_text(json.dumps({"id": "phone", "adaptation_goal": {"latency": "20ms"}}))
    with pytest.raises(MistifyError) as caught:
        load_config(path)
    assert [problem.place for problem in caught.value.problems] == ["[0].model", "[0].dataset"]
    path.write_text(REPLACEMENT + 'job = "j"\n')
    template = goal_template(load_config(path).replacement)
    assert template.model_dump(exclude_unset=True).keys() == {"id", "adaptation_goal"}


def test_a_server_on_the_command_line_overrides_the_config(write):
    assert load_config(write(REPLACEMENT), "other:1").replacement.server == "other:1"
    assert load_config(write(REPORTING), "other:1").reporting.server == "other:1"
    with pytest.raises(
        MistifyError, match="replacement, reporting, fleet: got nothing; expected one of these tables"
    ):
        load_config(write(""), "other:1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("interval = ", "not valid TOML.*Invalid value"),
        ("interval = " + "[" * 5_000, "not valid TOML.*recursion"),
        ("interval = " + "9" * 5_000, "not valid TOML.*5000 digits"),
        ("interval = 250", 'interval: got 250; expected a time such as "2s"; write its unit'),
        ('interval = "0.5x"', "interval: .*use ns, us, ms, s, min"),
        ('interval = "0s"', "interval: .*above 0"),
        ('intervall = "1s"', 'did you mean "interval"'),
        ('[targets]\nlatency = "fast"', 'targets.latency: got "fast"'),
        ('[policy]\nname = "none"', "policy.name"),
        ('[policy]\nname = ["none"]', r'policy.name: got \["none"\]'),
        ("[policy]\nhysteresis = -1", "policy.hysteresis: got -1; expected a share from 0 to 1"),
        ('[replacement]\ngoal = "goal.json"', "replacement.server: got nothing; expected HOST:PORT"),
        ('[replacement]\ngoal = "goal.json"\nserver = "host"', "replacement.server: .*HOST:PORT"),
        ('[replacement]\ngoal = "other.json"\nserver = "h:1"', "other.json: got No such file"),
        ('[replacement]\ngoal = "\\u0000"\nserver = "h:1"', "got embedded null byte; expected a file"),
        (REPLACEMENT + 'token_file = "none"', "none: got No such file"),
        (REPLACEMENT + 'token_file = "\\u0000"', "got embedded null byte; expected a file with a token"),
        (REPLACEMENT + "agreement = 1.5", "replacement.agreement"),
        ('[reporting]\nserver = "h:1"', "reporting.device: got nothing"),
        (REPORTING + 'token_file = "none"', "none: got No such file"),
        (
            '[reporting]\nserver = "h:1"\ndevice = ""',
            'reporting.device: got ""; expected up to 64 lower-case',
        ),
        ('[reporting]\nserver = "h:1"\ndevice = "My Board"', "reporting.device: .*lower-case letters"),
        ('[reporting]\nserver = "h:1"\ndevice = "edge-tpu"', "reporting.device: .*not in the catalogue"),
    ],
)
def test_a_problem_is_reported_with_its_place(write, text, message):
    with pytest.raises(MistifyError, match=message) as caught:
        load_config(write(text))
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_all_problems_are_reported_at_once(write):
    with pytest.raises(MistifyError) as caught:
        load_config(write('interval = 1\n[targets]\nlatency = "x"\nspeed = 3\n'))
    assert {problem.place for problem in caught.value.problems} == {
        "interval",
        "targets.latency",
        "targets.speed",
    }


def test_a_template_has_exactly_one_goal(tmp_path):
    path = tmp_path / "goals.json"
    path.write_text(json.dumps([GOAL, {**GOAL, "id": "other"}]))
    with pytest.raises(MistifyError, match="got 2 goals; expected one"):
        goal_template(ReplacementConfig(server="127.0.0.1:1", goal=path))
