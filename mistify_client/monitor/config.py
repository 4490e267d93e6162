"""`monitor.toml`: what the daemon keeps to, how, and where it asks for new packages."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from mistify.config import PortingConfig, parse_batch
from mistify.errors import Problem, invalid_config
from mistify.validation import InvalidValue, Settings, problems_of
from mistify_client.files import read_text
from mistify_client.monitor.durations import Seconds
from mistify_client.monitor.policy import Policy, make_policy
from mistify_client.monitor.targets import Targets


def _check_address(given: str) -> str:
    host, _, port = given.rpartition(":")
    if host and port.isdecimal() and 0 < int(port) < 2**16:
        return given
    raise InvalidValue(given, "HOST:PORT", 'write for example "127.0.0.1:7465"')


Address = Annotated[str, AfterValidator(_check_address)]


class ReplacementConfig(Settings):
    """The background path: where new packages come from when no branch keeps to the targets.

    Attributes:
        server: its `host:port`.
        token_file: of the server's access token.
        job: the job that goals are added to; without one, the first goal begins a job.
        goal: a porting config (JSON) with one goal: model, data and algorithm of the job, and its hardware.
            Each new goal is this one with an id and limits of its own.
        after: how long no branch has to fit before a new package is asked for.
        examples: `.npz` with an array for each input, the more typical the better. A new package has to
            agree with the one in use on them.
        agreement: on what share of the examples.
        probation: how long a new package is watched, and undone if it takes longer than the old one did.
    """

    server: Address = Field(description="HOST:PORT", examples=["127.0.0.1:7465"])
    token_file: Path | None = None
    job: str | None = None
    goal: Path = Field(description="the path of a porting config", examples=["goal.json"])
    after: Seconds = Field(default=30.0, description='a time such as "30s"', examples=["30s"])
    examples: Path | None = None
    agreement: float = Field(default=0.7, ge=0, le=1, description="a share from 0 to 1", examples=[0.7])
    probation: Seconds = Field(default=60.0, description='a time such as "60s"', examples=["60s"])


class MonitorConfig(Settings):
    """The whole file. Paths in it are meant from its directory.

    Attributes:
        interval: between two decisions.
        targets: to keep to; `mistify target` overrides them.
        policy: its name, and its own settings.
        replacement: without it, no new package is asked for.
    """

    interval: Seconds = Field(default=0.25, description='a time such as "250ms"', examples=["250ms"])
    targets: Targets = Field(default_factory=Targets)
    policy: dict[str, object] = Field(
        default_factory=dict, description="a table with the policy's settings", examples=[{"dwell": "2s"}]
    )
    replacement: ReplacementConfig | None = None

    def make_policy(self) -> Policy:
        """A new policy, as configured.

        Raises:
            MistifyError: INVALID_CONFIG, it does not exist or refuses its settings.
        """
        return make_policy(self.policy)


def load_config(path: Path, server: str | None = None) -> MonitorConfig:
    """Read `monitor.toml`.

    Args:
        path: of the file.
        server: takes the place of the one in the file.

    Raises:
        MistifyError: INVALID_CONFIG with every problem of the file.
    """
    try:
        content = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        problem = Problem(str(path), "no TOML", "a monitor.toml", f"mend it: {error}")
        raise invalid_config([problem], str(path)) from error
    try:
        config = MonitorConfig.model_validate(_with_server(content, server, str(path)))
    except ValidationError as error:
        raise invalid_config(problems_of(error, MonitorConfig), str(path)) from error
    config.make_policy()
    if config.replacement is not None:
        config = config.model_copy(update={"replacement": _anchored(config.replacement, path.parent)})
    return config


def goal_template(path: Path) -> PortingConfig:
    """The porting config that new goals are made from.

    Raises:
        MistifyError: INVALID_CONFIG, it is none, or has several goals.
    """
    goals = parse_batch(read_text(path), str(path), server_knows_more=True)
    if len(goals) > 1:
        raise invalid_config(
            [Problem(str(path), f"{len(goals)} goals", "one", "leave the others out")], str(path)
        )
    return goals[0]


def read_token(path: Path | None) -> str | None:
    """The access token in a file; None where there is no file."""
    return None if path is None else read_text(path).strip()


def _with_server(content: Mapping[str, object], server: str | None, source: str) -> dict[str, object]:
    if server is None:
        return dict(content)
    replacement = content.get("replacement")
    if not isinstance(replacement, dict):
        problem = Problem("replacement", "nothing", "a table with a goal", "add it, or leave out --server")
        raise invalid_config([problem], source)
    return {**content, "replacement": {**replacement, "server": server}}


def _anchored(config: ReplacementConfig, directory: Path) -> ReplacementConfig:
    """The same with absolute paths, whose files are there and can be used."""
    paths = {
        name: directory.resolve() / path
        for name in ("token_file", "goal", "examples")
        if (path := getattr(config, name)) is not None
    }
    anchored = config.model_copy(update=paths)
    read_token(anchored.token_file)
    goal_template(anchored.goal)
    return anchored
