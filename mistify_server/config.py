"""Settings of `mistify-server serve`: command-line flags, which override a `server.toml`.

Each field of `ServeConfig` is both a flag and a key of the file.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import AfterValidator, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from typer.models import OptionInfo

from mistify.errors import Problem, invalid_config
from mistify.parsing.quantities import parse_size
from mistify.parsing.validation import problems_of
from mistify.tokens import read_token
from mistify.wire.listening import Certificate
from mistify_server.jobs.service import DEFAULT_MAX_GOALS
from mistify_server.listening import DEFAULT_HTTP, DEFAULT_LISTEN, checked_origin
from mistify_server.server import DEFAULT_ARTIFACTS_CACHE, DEFAULT_MAX_UPLOADS, ServerSettings
from mistify_server.store.objects.address import checked_bucket
from mistify_server.store.sql.postgresql.address import checked_address
from mistify_server.telemetry.logs import LogFormat
from mistify_server.tracing.opening import checked_collector
from mistify_server.tuning.storage import MEMORY

#: Settings of a store that only its main server may change.
_OF_MAIN_SERVER: Final = frozenset({"artifacts", "artifacts_cache", "index"})


def _file(example: str) -> Any:
    return Field(None, description="the path of a file", examples=[example])


def _size(text: str) -> str:
    """Return the text unchanged if it is a size in bytes."""
    parse_size(text)
    return text


class ServeConfig(BaseSettings):
    """Settings of `serve`.

    A field's `typer.Option` describes its flag. Its `description` and `examples` appear in errors about wrong
    values in the file.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    store: Annotated[Path, typer.Option(help="Directory of the server's jobs, models and packages.")] = Field(
        description="a directory", examples=["/var/lib/mistify"]
    )
    database: Annotated[
        str | None,
        AfterValidator(lambda address: address and checked_address(address)),
        typer.Option(
            metavar="postgresql://USER@HOST/NAME",
            help="PostgreSQL database for everything but files; ~/.pgpass contains its password.",
            show_default="SQLite in the store, or the database that the store had before",
        ),
    ] = Field(
        None,
        description="an address of a PostgreSQL database",
        examples=["postgresql://mistify@db.example.org/mistify"],
    )
    join: Annotated[
        bool,
        typer.Option(
            "--join/--no-join",
            help="Whether to share the jobs of a store whose database is in PostgreSQL with its main server, "
            "which runs without --join.",
            show_default="no-join",
        ),
    ] = Field(False, description="true or false", examples=[True])
    artifacts: Annotated[
        str | None,
        AfterValidator(lambda address: None if address is None else checked_bucket(address)),
        typer.Option(
            metavar="s3://BUCKET/PREFIX",
            help="Directory of a bucket in S3 for models, checkpoints and packages, for machines without a "
            "shared disk. Endpoint and key are those of AWS's variables and files.",
            show_default="the store, or the bucket that the store had before",
        ),
    ] = Field(None, description="an address in S3", examples=["s3://models/mistify"])
    artifacts_cache: Annotated[
        str,
        AfterValidator(_size),
        typer.Option(
            metavar="SIZE",
            help="Disk space on each machine for copies of artifacts in a bucket.",
            show_default=DEFAULT_ARTIFACTS_CACHE,
        ),
    ] = Field(DEFAULT_ARTIFACTS_CACHE, description="a size such as 20GB", examples=["20GB"])
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Address for gRPC; port 0 picks a free port.",
            show_default=DEFAULT_LISTEN,
        ),
    ] = Field(DEFAULT_LISTEN, description="HOST:PORT", examples=[DEFAULT_LISTEN])
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT|off",
            help="Address for the web pages and the REST API; off disables both.",
            show_default=DEFAULT_HTTP,
        ),
    ] = Field(None, description="HOST:PORT or off", examples=[DEFAULT_HTTP])
    http_origin: Annotated[
        list[str],
        AfterValidator(lambda origins: list(map(checked_origin, origins))),
        typer.Option(
            metavar="ORIGIN",
            help="Origin at which browsers reach the server through a proxy, such as "
            "https://porting.example.org; may be repeated.",
        ),
    ] = Field([], description="a list of origins", examples=[["https://porting.example.org"]])
    data_root: Annotated[
        list[Path], typer.Option(help="Directory with models and data; may be repeated.")
    ] = Field([], description="a list of directories", examples=[["/srv/data"]])
    allow_code: Annotated[
        bool,
        typer.Option(
            "--allow-code/--no-allow-code",
            help="Whether workers run the Python files with metrics, losses and models that configs name. "
            "Anyone who can call the server can then run any code as its user.",
            show_default="no-allow-code",
        ),
    ] = Field(False, description="true or false", examples=[True])
    engine: Annotated[
        str,
        typer.Option(
            metavar="local|ray|ray://HOST:PORT",
            help="Where tasks run: on this machine, on a local Ray cluster, or on any Ray cluster.",
            show_default="local",
        ),
    ] = Field("local", description="local, ray or ray://HOST:PORT", examples=["ray"])
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=256,
            help="Number of tasks that run concurrently.",
            show_default="1; with Ray, the cluster's number of CPUs",
        ),
    ] = Field(None, ge=1, le=256, description="a number from 1 to 256", examples=[2])
    max_goals: Annotated[
        int,
        typer.Option(
            min=1,
            max=1_000_000,
            help="Maximum number of goals in a job.",
            show_default=f"{DEFAULT_MAX_GOALS:,}",
        ),
    ] = Field(
        DEFAULT_MAX_GOALS, ge=1, le=1_000_000, description="a number from 1 to 1,000,000", examples=[10_000]
    )
    max_uploads: Annotated[
        str,
        AfterValidator(_size),
        typer.Option(
            metavar="SIZE",
            help="Disk space for uploaded models and data; as much for weights that devices publish.",
            show_default=DEFAULT_MAX_UPLOADS,
        ),
    ] = Field(DEFAULT_MAX_UPLOADS, description="a size such as 50GB", examples=["50GB"])
    index: Annotated[
        str,
        typer.Option(
            metavar="memory|redis://HOST:PORT",
            help="Where the index of peers is kept.",
            show_default=MEMORY,
        ),
    ] = Field(MEMORY, description="memory or redis://HOST:PORT", examples=["redis://127.0.0.1:6379"])
    token_file: Annotated[Path | None, typer.Option(help="File with the token that callers must send.")] = (
        _file("token")
    )
    tls_certificate: Annotated[
        Path | None,
        typer.Option(help="PEM file with the server's certificate chain; callers then use tls://HOST:PORT."),
    ] = _file("chain.pem")
    tls_key: Annotated[Path | None, typer.Option(help="PEM file with the server's private key.")] = _file(
        "key.pem"
    )
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(
            help="PEM file with the authority of which every caller must present a certificate, browsers too."
        ),
    ] = _file("clients.pem")
    log_format: Annotated[
        LogFormat,
        typer.Option(
            help="Readable lines, or one line of JSON per event.", show_default=LogFormat.TEXT.value
        ),
    ] = Field(LogFormat.TEXT, description="text or json", examples=["json"])
    traces: Annotated[
        str | None,
        AfterValidator(lambda address: None if address is None else checked_collector(address)),
        typer.Option(
            metavar="URL",
            help="Collector of OpenTelemetry to which the traces of jobs are sent, such as "
            "http://127.0.0.1:4318.",
            show_default="that of OTEL_EXPORTER_OTLP_ENDPOINT, if it is set",
        ),
    ] = Field(None, description="the URL of a collector", examples=["http://127.0.0.1:4318"])
    ready_file: Annotated[
        Path | None, typer.Option(help="File to which the server writes its address once it answers calls.")
    ] = _file("ready")
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--no-resume",
            help="Whether to resume unfinished jobs in the store.",
            show_default="resume",
        ),
    ] = Field(True, description="true or false", examples=[True])

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of values in order of precedence: the flags, then the file."""
        return init_settings, TomlConfigSettingsSource(settings_cls)

    def server_settings(self) -> ServerSettings:
        """Return the settings of the server, with the token read from its file.

        Raises:
            MistifyError: INVALID_CONFIG, the token or the certificate cannot be used.
        """
        return ServerSettings(
            store=self.store.resolve(),
            database=self.database,
            artifacts=self.artifacts,
            artifacts_cache=parse_size(self.artifacts_cache),
            listen=self.listen,
            http=self.http,
            http_origins=tuple(self.http_origin),
            data_roots=tuple(self.data_root),
            allow_code=self.allow_code,
            engine=self.engine,
            slots=self.slots,
            max_goals=self.max_goals,
            max_uploads=parse_size(self.max_uploads),
            index=self.index,
            certificate=Certificate.of(self.tls_certificate, self.tls_key, self.tls_client_ca),
            token=read_token(self.token_file),
            resume=self.resume,
            join=self.join,
            traces=self.traces,
        )


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Replace a command's `**flags` by a flag for each field of `ServeConfig`, with None as its default."""
    own = inspect.signature(command).parameters.values()
    flags = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[field.annotation | None, _option(field)],  # type: ignore[operator]
        )
        for name, field in ServeConfig.model_fields.items()
    ]
    kept = [parameter for parameter in own if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    command.__signature__ = inspect.Signature([*kept, *flags])  # type: ignore[attr-defined]
    return command


def load_config(path: Path | None, flags: Mapping[str, object]) -> ServeConfig:
    """Merge a file's settings and the flags; flags take precedence.

    Args:
        path: A `server.toml`, with paths relative to its directory; None for flags alone.
        flags: Key -> value; None or an empty list if the flag was not given.

    Raises:
        MistifyError: INVALID_CONFIG with every problem in the file and every missing setting.
    """
    chosen = {name: value for name, value in flags.items() if value not in (None, [])}

    class ConfigWithFile(ServeConfig):
        model_config = SettingsConfigDict(toml_file=path)

    source = "the command line" if path is None else str(path)
    try:
        if path is not None:
            path.read_bytes()  # pydantic-settings treats a missing file as empty
        config = ConfigWithFile(**chosen)  # type: ignore[arg-type]
    except ValidationError as error:
        problems = problems_of(error, ServeConfig)
        flagged = problems if path else [replace(wrong, place=_flag(wrong.place)) for wrong in problems]
        raise invalid_config(flagged, source) from error
    except (OSError, ValueError, RecursionError) as error:  # not TOML, or too large a number or depth
        problem = Problem(source, f"a file that cannot be read ({error})", "a TOML file", "fix it")
        raise invalid_config([problem], source) from error
    if config.join and (of_main := _OF_MAIN_SERVER & config.model_fields_set):
        problems = [_only_of_main_server(config, name, flag=name in chosen) for name in sorted(of_main)]
        raise invalid_config(problems, source)
    return config if path is None else _anchored(config, chosen, path.parent)


def _only_of_main_server(config: ServeConfig, name: str, *, flag: bool) -> Problem:
    place, value = _flag(name) if flag else name, getattr(config, name)
    fix = "leave it out here, and set it for the main server"
    return Problem(place, f'"{value}" with --join', "the setting of the main server, which all use", fix)


def _option(field: FieldInfo) -> OptionInfo:
    return next(option for option in field.metadata if isinstance(option, OptionInfo))


def _flag(key: str) -> str:
    return "--" + key.replace("_", "-")


def _anchored(config: ServeConfig, flags: Collection[str], directory: Path) -> ServeConfig:
    """Resolve a file's relative paths against its directory."""
    changes: dict[str, object] = {}
    for name in config.model_fields_set.difference(flags):
        value = getattr(config, name)
        if isinstance(value, Path):
            changes[name] = directory / value
        elif isinstance(value, list):
            changes[name] = [directory / each if isinstance(each, Path) else each for each in value]
    return config.model_copy(update=changes)
