"""`monitor.toml`: what the daemon keeps to, how, and where it asks for new packages."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field, PositiveInt, ValidationError

from mistify.config.porting import PortingConfig
from mistify.config.reading import parse_batch
from mistify.errors import Problem, invalid_config
from mistify.parsing.validation import InvalidValue, Settings, problems_of
from mistify.wire.address import is_address
from mistify_client.files import read_text, read_token
from mistify_client.monitor.durations import Seconds
from mistify_client.monitor.policies.base import Policy, make_policy
from mistify_client.monitor.state.targets import Targets


def _check_address(given: str) -> str:
    if is_address(given):
        return given
    raise InvalidValue(given, "HOST:PORT", 'write for example "127.0.0.1:7465"')


Address = Annotated[str, AfterValidator(_check_address)]


class ServerConfig(Settings):
    """The server that something is asked of.

    Attributes:
        server: its `host:port`.
        token_file: of the server's access token.
    """

    server: Address = Field(description="HOST:PORT", examples=["127.0.0.1:7465"])
    token_file: Path | None = None


class ReplacementConfig(ServerConfig):
    """The background path: where new packages come from when no branch keeps to the targets.

    Attributes:
        job: the job that goals are added to; without one, the first goal begins a job.
        goal: a porting config (JSON) with one goal: model, data and algorithm of the job, and its hardware.
            Each new goal is this one with an id and limits of its own.
        after: how long no branch has to fit before a new package is asked for.
        examples: `.npz` with an array for each input, the more typical the better. A new package has to
            agree with the one in use on them.
        agreement: on what share of the examples.
        probation: how long a new package is watched, and undone if it takes longer than the old one did.
    """

    job: str | None = None
    goal: Path = Field(description="the path of a porting config", examples=["goal.json"])
    after: Seconds = Field(default=30.0, description='a time such as "30s"', examples=["30s"])
    examples: Path | None = None
    agreement: float = Field(default=0.7, ge=0, le=1, description="a share from 0 to 1", examples=[0.7])
    probation: Seconds = Field(default=60.0, description='a time such as "60s"', examples=["60s"])


class ReportingConfig(ServerConfig):
    """What packages take on this device is told to the server, whose predictions for it follow.

    Attributes:
        device: what goals call this device, whose table the server has.
        threads: a package is measured with each of these numbers; the fastest counts. Without them, those of
            the device's table, as predictions have it.
        free: what share of the processors has to be free, without a break ...
        quiet: ... for so long, before a package is measured.
    """

    device: str = Field(description="the name of a measured device", examples=["my-board"])
    threads: tuple[PositiveInt, ...] | None = Field(
        default=None, min_length=1, description="numbers of threads", examples=[[1, 2]]
    )
    free: float = Field(default=0.9, ge=0, le=1, description="a share from 0 to 1", examples=[0.9])
    quiet: Seconds = Field(default=10.0, description='a time such as "10s"', examples=["10s"])


#: The tables of the config that name a server.
_SERVER_TABLES: Final = ("replacement", "reporting")


class MonitorConfig(Settings):
    """The whole file. Paths in it are meant from its directory.

    Attributes:
        interval: between two decisions.
        targets: to keep to; `mistify target` overrides them.
        policy: its name, and its own settings.
        replacement: without it, no new package is asked for.
        reporting: without it, the server is not told what packages take.
    """

    interval: Seconds = Field(default=0.25, description='a time such as "250ms"', examples=["250ms"])
    targets: Targets = Field(default_factory=Targets)
    policy: dict[str, object] = Field(
        default_factory=dict, description="a table with the policy's settings", examples=[{"dwell": "2s"}]
    )
    replacement: ReplacementConfig | None = None
    reporting: ReportingConfig | None = None

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
        server: takes the place of those in the file.

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
    tables = {name: getattr(config, name) for name in _SERVER_TABLES}
    anchored = {
        name: _anchored(table, path.parent.resolve()) for name, table in tables.items() if table is not None
    }
    config = config.model_copy(update=anchored)
    if config.replacement is not None:
        goal_template(config.replacement.goal)
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


def _with_server(content: Mapping[str, object], server: str | None, source: str) -> dict[str, object]:
    if server is None:
        return dict(content)
    tables = {name: table for name in _SERVER_TABLES if isinstance(table := content.get(name), dict)}
    if not tables:
        problem = Problem(
            "replacement", "nothing", "a table with a goal", "add it, or reporting, or leave out --server"
        )
        raise invalid_config([problem], source)
    return {**content, **{name: {**table, "server": server} for name, table in tables.items()}}


def _anchored(table: ServerConfig, directory: Path) -> ServerConfig:
    """The same with absolute paths, and a token that can be read."""
    paths = {name: directory / value for name, value in table if isinstance(value, Path)}
    read_token(paths.get("token_file"))
    return table.model_copy(update=paths)
