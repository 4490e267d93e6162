"""The engine that runs an option in LiteRT."""

from typing import Annotated

from pydantic import Field, model_validator

from mistify.package.records import Record
from mistify.parsing.validation import InvalidValue
from mistify.wording import counted
from mistify_client.assembly.executions import Execution


class Engine(Record):
    """The way to run an option in LiteRT; its latency was measured with the same engine.

    Attributes:
        execution: LiteRT's `Interpreter` or `CompiledModel`.
        threads: Number of threads for the computation.
        mapped_weights: Map the weights, as packed for the kernels, from a file that all processes share,
            rather than pack them into memory of each; `CompiledModel` only.
    """

    execution: Execution = Execution.INTERPRETER
    threads: Annotated[int, Field(ge=1)] = 1
    mapped_weights: bool = False

    @model_validator(mode="after")
    def _can_map_weights(self) -> "Engine":
        if self.mapped_weights and self.execution is not Execution.COMPILED:
            raise InvalidValue(self.execution, Execution.COMPILED.value, "only it maps weights from a file")
        return self

    def __str__(self) -> str:
        """Return the engine in words, such as "compiled, 2 threads, mapped weights"."""
        cache = ", mapped weights" if self.mapped_weights else ""
        return f"{self.execution}, {counted(self.threads, 'thread')}{cache}"
