"""The table `[lending]` of a config: the helpers of a device."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from mistify.errors import invalid_config
from mistify.parsing.validation import InvalidValue, Settings, problems_of
from mistify.tokens import read_token
from mistify.wire.address import is_address
from mistify_client.files import read_toml


def _check_address(address: str) -> str:
    if is_address(address):
        return address
    raise InvalidValue(address, "HOST:PORT or tls://HOST:PORT", 'for example "drone:7470"')


class LendingConfig(Settings):
    """The helpers of a device, which run blocks of its networks.

    Attributes:
        helpers: Addresses of helpers as `host:port`, or `tls://host:port`.
        token_file: File with the helpers' token; not needed if they have none.
        ca: PEM file with the authority's certificate, for helpers at tls://; gRPC's default list without it.
        patience: An answer is awaited for this many times the expected time, and at least 20 ms. Then the
            blocks run on this device.
        rounding_loss: Tensors between blocks are rounded to bytes, a quarter of what they are, where that
            loses at most this share of the accuracy as measured by the server; 0 to round none.
    """

    helpers: Annotated[
        tuple[Annotated[str, AfterValidator(_check_address)], ...], Field(min_length=1, max_length=16)
    ] = Field(description="a list of HOST:PORT", examples=[["drone:7470"]])
    token_file: Path | None = None
    ca: Path | None = None
    patience: float = Field(default=3.0, ge=1, le=1000, description="a number from 1", examples=[3])
    rounding_loss: float = Field(
        default=0.005, ge=0, le=1, description="a share of the accuracy from 0 to 1", examples=[0.005]
    )

    def below(self, directory: Path) -> "LendingConfig":
        """Return a copy whose relative paths are those in a directory."""
        paths = {name: directory / value for name, value in self if isinstance(value, Path)}
        return self.model_copy(update=paths)

    def token(self) -> str | None:
        """Return the token of the helpers.

        Raises:
            MistifyError: INVALID_CONFIG, the file cannot be read, has no token, or others can read it.
        """
        return read_token(self.token_file)


class _Tables(Settings, extra="ignore"):
    """A config, of which only one table is used.

    Attributes:
        lending: The table.
    """

    lending: LendingConfig = Field(
        description="a table with the helpers", examples=[{"helpers": ["drone:7470"]}]
    )


def read_lending(path: Path) -> LendingConfig:
    """Return the table `[lending]` of a TOML file, such as the config of the monitor.

    Raises:
        MistifyError: INVALID_CONFIG with every problem of the table.
    """
    content = read_toml(path, "a config")
    try:
        return _Tables.model_validate(content).lending.below(path.parent.resolve())
    except ValidationError as error:
        raise invalid_config(problems_of(error, _Tables, value=content), str(path)) from error
