"""The base of messages between processes of the server, and of stored values."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A frozen message; unknown keys are errors, and infinite numbers become `Infinity` in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")
