"""NN-Factory's settings; they need no TensorFlow."""

from pydantic import Field

from executors.contract.params import Params


class NNFactoryParams(Params):
    """The settings of NN-Factory.

    Attributes:
        answer_steps: Training steps in which the source learns to answer all tasks at once, before it has
            gates; none where tasks are classes of a source that knows them.
        gate_steps: Training steps of gates and network together.
        least_limit: The lowest limit that is trained: a share of the units. Small networks have a higher one,
            so that some units are left.
        encoder: Width of the assembler's selection encoder.
        gaters: Gaters for each group of units. The paper mixes several; one is as good, and the assembler
            half as large.
        gate_weight: Weight of the squared excess over the limit, beside the loss of the task.
        modulate: Whether the assembler gives each unit a scale and a shift as well, which become part of a
            slice's weights. Without them, gates alone tell a network its task, as in the paper.
        noise: Whether logits of gates get noise in training, as in the SemHash that the paper builds on.
        extra_tasks: Share of the examples that are of tasks without a name for their set of values.
        inside: Whether packages contain the supernet and its assembler, so that devices can make slices of
            their own.
        batch_size: Examples of a training step, each with a task and a limit of its own.
        source_steps: Steps that tune the source before that; a source of many tasks is trained by
            `answer_steps`.
        tune_steps: Additional steps that tune a slice on the data of its task.
    """

    answer_steps: int = Field(default=1500, ge=0)
    gate_steps: int = Field(default=3000, ge=0)
    least_limit: float = Field(default=0.03, gt=0, le=1)
    encoder: int = Field(default=128, ge=1, le=4096)
    gaters: int = Field(default=1, ge=1, le=64)
    gate_weight: float = Field(default=100.0, ge=0)
    modulate: bool = True
    noise: bool = False
    extra_tasks: float = Field(default=0.7, ge=0, le=1)
    inside: bool = False
    batch_size: int = Field(default=96, ge=1, le=4096)
    source_steps: int = Field(default=0, ge=0)
    tune_steps: int = Field(default=0, ge=0)
