"""The base of what processes of the server tell each other and keep."""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A frozen message; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")
