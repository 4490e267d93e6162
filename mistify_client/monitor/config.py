"""The daemon's config `monitor.toml`: targets, policy, and the servers for new packages and reports."""

from collections.abc import Mapping
from pathlib import Path
from socket import gethostname
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, Field, ValidationError

from mistify.config.porting import PortingConfig
from mistify.config.reading import OF_ANY_JOB, parse_batch
from mistify.costs.devices import name_problems
from mistify.errors import Problem, invalid_config
from mistify.fleet import LONGEST_NAME
from mistify.parsing.validation import InvalidValue, Settings, problems_of
from mistify.tokens import read_token
from mistify.wire.address import is_address
from mistify_client.files import read_text, read_toml
from mistify_client.lending.config import LendingConfig
from mistify_client.monitor.durations import Seconds
from mistify_client.monitor.policies.base import Policy, make_policy
from mistify_client.monitor.state.targets import Targets
from mistify_client.porting.goal import only_goal
from mistify_client.runtime.trust import EXPECTED, FIX, Trust, is_entry


def _check_entry(entry: str) -> str:
    if is_entry(entry):
        return entry
    raise InvalidValue(repr(entry), EXPECTED, FIX)


TrustedEntry = Annotated[str, AfterValidator(_check_entry)]


def _check_address(address: str) -> str:
    if is_address(address):
        return address
    raise InvalidValue(address, "HOST:PORT", 'for example "127.0.0.1:7465"')


Address = Annotated[str, AfterValidator(_check_address)]


class ServerConfig(Settings):
    """Address and access token of a server.

    Attributes:
        server: Address as `host:port`.
        token_file: File with the server's access token; not needed if the server has none.
    """

    server: Address = Field(description="HOST:PORT", examples=["127.0.0.1:7465"])
    token_file: Path | None = None


class ReplacementConfig(ServerConfig):
    """Settings of the background path, which requests new packages if no option meets the targets.

    Attributes:
        job: The job that goals are added to; without one, the first goal starts a job.
        goal: A porting config (JSON) with one goal, and its hardware. It is the template of new goals, which
            get their own ids and limits. With a job, it may omit the model, the dataset and the algorithm and
            use those of the job.
        after: Seconds without a suitable option before a new package is requested.
        examples: `.npz` file with an array of typical examples for each input. A new package has to agree
            with the current one on them.
        agreement: Share of the examples, 0 to 1, on which both packages have to agree.
        probation: Seconds for which a new package is monitored. It is rolled back if it is slower than the
            old one was.
    """

    job: str | None = None
    goal: Path = Field(description="the path of a porting config", examples=["goal.json"])
    after: Seconds = Field(default=30.0, description='a time such as "30s"', examples=["30s"])
    examples: Path | None = None
    agreement: float = Field(default=0.7, ge=0, le=1, description="a share from 0 to 1", examples=[0.7])
    probation: Seconds = Field(default=60.0, description='a time such as "60s"', examples=["60s"])


class SearchConfig(Settings):
    """Settings of the search for other subnets of a package with blocks, if none in its pool fits.

    Attributes:
        enabled: Whether the monitor searches.
        after: Seconds without a suitable subnet before the search.
    """

    enabled: bool = True
    after: Seconds = Field(default=10.0, description='a time such as "10s"', examples=["10s"])


def _check_device(name: str) -> str:
    for problem in name_problems(name):
        raise InvalidValue(name, problem.expected, problem.fix)
    return name


class ReportingConfig(ServerConfig):
    """Settings for reports of measured latencies, which correct the server's predictions.

    Attributes:
        device: The device's name in goals; the server has a table of its latencies.
        free: Share of the processors, 0 to 1, that has to be idle before a package is measured.
        quiet: Seconds for which that share has to be idle without interruption.
    """

    device: Annotated[str, AfterValidator(_check_device)] = Field(
        description="the name of a measured device", examples=["my-board"]
    )
    free: float = Field(default=0.9, ge=0, le=1, description="a share from 0 to 1", examples=[0.9])
    quiet: Seconds = Field(default=10.0, description='a time such as "10s"', examples=["10s"])


def _check_name(name: str) -> str:
    if 0 < len(name) <= LONGEST_NAME:
        return name
    expected = f"1 to {LONGEST_NAME} characters"
    raise InvalidValue(f"{len(name)} characters", expected, "leave it out for the name of the host")


class RolloutConfig(Settings):
    """Settings of roll-outs, by which the server replaces the package.

    Attributes:
        package: The id of the goal that the package on this device was shipped for. It says which package the
            server may replace.
        examples: `.npz` file with an array of typical examples for each input. The device reports on how many
            of them a new package agrees with the current one.
    """

    package: str = Field(description="the goal of the package", examples=["phone"])
    examples: Path | None = None


class FleetConfig(ServerConfig):
    """Settings for status reports of this device, which the server shows on its fleet page.

    Attributes:
        name: The device's name in the fleet; it has to be unique.
        every: Seconds between reports if nothing changes; changes are reported at once.
        rollouts: Settings of roll-outs; without them, the server cannot replace the package.
    """

    name: Annotated[str, AfterValidator(_check_name)] = Field(
        default_factory=gethostname, description="a unique name of this device", examples=["kitchen-7"]
    )
    every: Seconds = Field(default=60.0, description='a time such as "60s"', examples=["60s"])
    rollouts: RolloutConfig | None = None


class AdaptationConfig(Settings):
    """Settings of the adaptation to the data of this place, without labels.

    Attributes:
        every: Seconds between two looks at the inputs of apps.
    """

    every: Seconds = Field(default=2.0, description='a time such as "2s"', examples=["2s"])


_Table = TypeVar("_Table", bound=Settings)

#: Tables of the config that name a server.
_SERVER_TABLES: Final = ("replacement", "reporting", "fleet")


class MonitorConfig(Settings):
    """The whole config. Relative paths in it are relative to the directory of the file.

    Attributes:
        interval: Seconds between decisions.
        targets: The limits to meet; `mistify target` overrides them.
        policy: Name and settings of the policy.
        search: Settings of the search for other subnets, which precedes the request for a new package.
        replacement: Settings of the background path; without them, no new package is requested.
        reporting: Settings of the latency reports; without them, none are sent.
        fleet: Settings of the status reports; without them, the server does not list this device.
        adaptation: Settings of the adaptation to a shift of the data; without them, there is none.
        lending: The helpers of this device, for apps that load the package with this file as `lending`.
        trusted: The keys of servers, by one of which packages have to be signed; None for those in the file
            of `mistify trust`.
    """

    interval: Seconds = Field(default=0.25, description='a time such as "250ms"', examples=["250ms"])
    targets: Targets = Field(default_factory=Targets)
    policy: dict[str, object] = Field(
        default_factory=dict, description="a table with the policy's settings", examples=[{"dwell": "2s"}]
    )
    search: SearchConfig = Field(default_factory=SearchConfig)
    replacement: ReplacementConfig | None = None
    reporting: ReportingConfig | None = None
    fleet: FleetConfig | None = None
    adaptation: AdaptationConfig | None = None
    lending: LendingConfig | None = None
    trusted: Annotated[tuple[TrustedEntry, ...], Field(min_length=1)] | None = Field(
        default=None, description="a list of keys", examples=[["ed25519:..."]]
    )

    @property
    def trust(self) -> Trust | None:
        """The keys whose packages the device accepts; None for every package.

        Raises:
            MistifyError: INVALID_CONFIG, a key is invalid, or the file of trusted keys cannot be read.
        """
        return Trust.configured() if self.trusted is None else Trust.of(self.trusted, "trusted")

    def make_policy(self) -> Policy:
        """Return a new policy as configured.

        Raises:
            MistifyError: INVALID_CONFIG, the policy does not exist or rejects its settings.
        """
        return make_policy(self.policy)


def load_config(path: Path, server: str | None = None) -> MonitorConfig:
    """Read and check `monitor.toml` and the files that it names.

    Args:
        server: An address that replaces every server in the file; None keeps them.

    Returns:
        The config, with absolute paths.

    Raises:
        MistifyError: INVALID_CONFIG with every problem of the file.
    """
    config = read_config(path, server)
    tables = {name: getattr(config, name) for name in _SERVER_TABLES}
    resolved = {
        name: _resolved(table, path.parent.resolve()) for name, table in tables.items() if table is not None
    }
    config = config.model_copy(update=resolved)
    if config.replacement is not None:
        goal_template(config.replacement)
    return config


def read_config(path: Path, server: str | None = None) -> MonitorConfig:
    """Read and check `monitor.toml` itself; the files that it names need not exist.

    Args:
        server: An address that replaces every server in the file; None keeps them.

    Raises:
        MistifyError: INVALID_CONFIG with every problem of the file.
    """
    content = read_toml(path, "a monitor.toml")
    try:
        whole = _with_server(content, server, str(path))
        config = MonitorConfig.model_validate(whole)
    except ValidationError as error:
        raise invalid_config(problems_of(error, MonitorConfig, value=whole), str(path)) from error
    config.make_policy()
    return config


def goal_template(config: ReplacementConfig) -> PortingConfig:
    """Return the porting config that is the template for new goals.

    Raises:
        MistifyError: INVALID_CONFIG, the file is not a porting config, or has several goals.
    """
    path, common = config.goal, OF_ANY_JOB if config.job else None
    return only_goal(
        parse_batch(read_text(path), str(path), server_knows_more=True, common=common), str(path)
    )


def _with_server(content: Mapping[str, object], server: str | None, source: str) -> dict[str, object]:
    if server is None:
        return dict(content)
    tables = {name: table for name in _SERVER_TABLES if isinstance(table := content.get(name), dict)}
    if not tables:
        names = ", ".join(_SERVER_TABLES)
        problem = Problem(names, "nothing", "one of these tables", "add one, or leave out --server")
        raise invalid_config([problem], source)
    return {**content, **{name: {**table, "server": server} for name, table in tables.items()}}


def _resolved(table: ServerConfig, directory: Path) -> ServerConfig:
    """Return a copy with absolute paths, after checking that its token can be read."""
    resolved = _absolute(table, directory)
    read_token(resolved.token_file)
    return resolved


def _absolute(table: _Table, directory: Path) -> _Table:
    """Return a copy of a table, and of the tables in it, with absolute paths."""
    changed: dict[str, object] = {}
    for name, value in table:
        if isinstance(value, Path):
            changed[name] = directory / value
        elif isinstance(value, Settings):
            changed[name] = _absolute(value, directory)
    return table.model_copy(update=changed)
