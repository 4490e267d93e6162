"""Tasks of workers."""

from typing import Literal, TypeAlias

from mistify.config.data.targets import Target
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.task import TaskConfig
from mistify.jobs.package_spec import PackageSpec
from mistify_server.tasks.base import Message
from mistify_server.tasks.recipe import Recipe, TaughtRecipe
from mistify_server.tasks.results import BranchResult

#: Measurements: of the source as it came, its accuracy and a training step's seconds; of a trial of
#: tuning it; of this machine.
Measure: TypeAlias = Literal["accuracy", "host", "step", "trial"]


class InspectTask(Message):
    """Inspect a model and its data before anything is started.

    `measures` names what to measure; with `host`, this machine's profile at each precision is that of a
    measured device.
    """

    kind: Literal["inspect"] = "inspect"
    recipe: Recipe
    measures: tuple[Measure, ...] = ()


class SourceTask(Message):
    """Make the root of a goal tree: the source tuned on the data, and widened where goals ask for it."""

    kind: Literal["source"] = "source"
    recipe: Recipe
    exceed: dict[str, float]


class PrepareTask(Message):
    """Compute the parts that an algorithm needs once for all goals of a tree.

    `least` has the least limits of the edges that it will adapt, by axis. They are of one `task`; None where
    the algorithm prepares for all tasks at once, or for all that the data teach.
    """

    kind: Literal["prepare"] = "prepare"
    recipe: TaughtRecipe
    least: dict[str, float]
    task: TaskConfig | None = None


class BaseAdaptTask(Message):
    """Base of tasks that adapt a parent's checkpoint to a budget, with the source as the teacher.

    `quantizations` are the packages' precisions: limits on latency are measured with them, and with the
    threads that the budget's axes name. The parent serves the same `task`, or it is the root.
    """

    recipe: TaughtRecipe
    parent: str
    budget: dict[str, float]
    task: TaskConfig | None = None
    quantizations: tuple[QuantizationConfig, ...] = (QuantizationConfig(),)


class AdaptTask(BaseAdaptTask):
    """One edge of a goal tree: from the parent's checkpoint to a goal."""

    kind: Literal["adapt"] = "adapt"
    targets: tuple[Target, ...] = ()


class BranchTask(BaseAdaptTask):
    """The branches of a goal's package (paper 6): from the goal's checkpoint to multiples of its budget.

    `shares` are the multiples, ascending, the goal's own 1 among them; `costs` are the checkpoint's;
    `targets` are of the goal's own branch.
    """

    kind: Literal["branch"] = "branch"
    targets: tuple[Target, ...] = ()
    shares: tuple[float, ...]
    costs: dict[str, float]


class PackageTask(Message):
    """A task that turns a checkpoint into `serve.tflite`, `train.tflite` and `manifest.json`.

    Attributes:
        recipe: The recipe of the network, with the settings of training.
        goal_id: Id of the goal in the job.
        spec: The package that the goal asks for.
        checkpoint: The artifact of the adapted network.
        costs: Costs of the checkpoint by axis.
        accuracy: Accuracy of the checkpoint on the validation data.
        branches: The networks that the package can switch between, the checkpoint among them; None where it
            cannot.
    """

    kind: Literal["package"] = "package"
    recipe: TaughtRecipe
    job_id: str
    goal_id: str
    spec: PackageSpec
    checkpoint: str
    costs: dict[str, float]
    accuracy: float
    branches: BranchResult | None = None


class ReferenceTask(Message):
    """A task that measures the source as packages are measured: what they gained and lost against it.

    Latencies are measured with each number of `threads`.
    """

    kind: Literal["reference"] = "reference"
    recipe: TaughtRecipe
    threads: tuple[int, ...]


Task = InspectTask | SourceTask | PrepareTask | AdaptTask | BranchTask | PackageTask | ReferenceTask
