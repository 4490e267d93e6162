"""The engine of an option: how LiteRT runs it."""

from typing import Annotated

from pydantic import Field

from mistify.package.records import Record
from mistify_client.assembly.executions import Execution


class Engine(Record):
    """How LiteRT runs an option; its latency was measured in this way.

    Attributes:
        execution: The `Interpreter` or the `CompiledModel` of LiteRT.
        threads: Number of threads that compute.
    """

    execution: Execution = Execution.INTERPRETER
    threads: Annotated[int, Field(ge=1)] = 1
