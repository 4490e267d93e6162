"""Tasks of workers."""

from typing import Literal, TypeAlias

from mistify.config.data.targets import Target
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.task import TaskConfig
from mistify.jobs.package_spec import PackageSpec
from mistify_server.tasks.base import Message
from mistify_server.tasks.recipe import Recipe, TaughtRecipe
from mistify_server.tasks.results import BranchResult

#: Measurements: the accuracy of the source before tuning, this machine, the duration of a training step, and
#: a trial of tuning the source.
Measure: TypeAlias = Literal["accuracy", "host", "step", "trial"]


class InspectTask(Message):
    """A task that inspects a model and its data before a job starts.

    `measures` names the measurements. With `host`, this machine is profiled at each precision, like a
    measured device.
    """

    kind: Literal["inspect"] = "inspect"
    recipe: Recipe
    measures: tuple[Measure, ...] = ()


class SourceTask(Message):
    """A task that makes the root of a goal tree: the source, tuned and, if goals need it, widened."""

    kind: Literal["source"] = "source"
    recipe: Recipe
    exceed: dict[str, float]


class PrepareTask(Message):
    """A task that computes an algorithm's shared preparation for all goals of a tree.

    `least` has the tightest limits of the edges that it will adapt, by axis. The edges belong to one `task`;
    None if the algorithm prepares for all tasks at once, or for everything that the data teach.
    """

    kind: Literal["prepare"] = "prepare"
    recipe: TaughtRecipe
    least: dict[str, float]
    task: TaskConfig | None = None


class BaseAdaptTask(Message):
    """Base class of tasks that adapt a parent's checkpoint to a budget, with the source as the teacher.

    `quantizations` are the packages' precisions. Limited latencies are measured at these precisions, with the
    numbers of threads named by the budget's axes. The parent serves the same `task`, or is the root.
    """

    recipe: TaughtRecipe
    parent: str
    budget: dict[str, float]
    task: TaskConfig | None = None
    quantizations: tuple[QuantizationConfig, ...] = (QuantizationConfig(),)


class AdaptTask(BaseAdaptTask):
    """A task for one edge of a goal tree, from the parent's checkpoint to a goal.

    `planned_steps` is the expected number of training steps, for its progress; 0 if it is unknown.
    """

    kind: Literal["adapt"] = "adapt"
    targets: tuple[Target, ...] = ()
    planned_steps: int = 0


class BranchTask(BaseAdaptTask):
    """A task that adapts a goal's checkpoint to the package's branches: multiples of its budget (paper 6).

    `shares` are the multiples in ascending order, including the goal's own 1. `costs` are the checkpoint's.
    `targets` apply to the goal's own branch.
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
        checkpoint: The artifact of the adapted network.
        costs: Costs of the checkpoint by axis.
        accuracy: Accuracy of the checkpoint on the validation data.
        branches: The networks that the package can switch between, including the checkpoint; None without
            branches.
        shares_conversion: Whether so many goals have this precision that they share a converted file.
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
    shares_conversion: bool = False


class ReferenceTask(Message):
    """A task that measures the source in the same way as packages, as their baseline.

    Latencies are measured with each number of `threads`.
    """

    kind: Literal["reference"] = "reference"
    recipe: TaughtRecipe
    threads: tuple[int, ...]


Task = InspectTask | SourceTask | PrepareTask | AdaptTask | BranchTask | PackageTask | ReferenceTask
