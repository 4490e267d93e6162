"""The base of messages between processes of the server, and of stored values."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A frozen message; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
