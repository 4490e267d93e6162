"""The engine that runs an option in LiteRT."""

from typing import Annotated

from pydantic import Field

from mistify.package.records import Record
from mistify_client.assembly.executions import Execution


class Engine(Record):
    """The way to run an option in LiteRT; its latency was measured with the same engine.

    Attributes:
        execution: LiteRT's `Interpreter` or `CompiledModel`.
        threads: Number of threads for the computation.
    """

    execution: Execution = Execution.INTERPRETER
    threads: Annotated[int, Field(ge=1)] = 1
