"""Plans of batches: their goal trees and checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import Field

from mistify.config.data.dataset import DatasetConfig
from mistify.config.data.targets import Target
from mistify.config.task import TaskConfig
from mistify.jobs.plan import Estimate
from mistify_server.tasks.base import Message
from mistify_server.tasks.estimates import EdgeEstimates
from mistify_server.tasks.recipe import Recipe
from mistify_server.tasks.results import (
    AdaptResult,
    BranchResult,
    PrepareResult,
    ReferenceResult,
    SourceResult,
)


class NodePlan(Message):
    """A node of a goal tree: one budget for one task, and all goals that have both.

    `task` is None for everything that the data teach.

    `targets` are the strictest of its goals' targets. `parent` is None for a child of the source. `algorithm`
    adapts the parent's network to this node, and `choice` gives the reason; it is empty while none is chosen,
    and if the model cannot be adapted. `foreseen` is the expected loss relative to the tuned source's
    accuracy after a round of tuning; None if the model cannot be adapted. `steps` and `seconds` are the
    expected training steps and time of the adaptation, `packaging_seconds` the expected time of the goals'
    packages; 0 if they are unknown.
    """

    index: int
    parent: int | None
    budget: dict[str, float]
    targets: tuple[Target, ...]
    seed: int
    goals: tuple[str, ...]
    algorithm: str = ""
    choice: str = ""
    foreseen: Estimate | None = None
    task: TaskConfig | None = None
    steps: int = 0
    seconds: float = 0.0
    packaging_seconds: float = 0.0


class BatchPlan(Message):
    """A collective batch as planned at submission; later, only its tree and hardware grow.

    `model_name` and `dataset` are the config's `model` and `dataset`; the `recipe` has the resolved ones.
    `source_costs` and `floor`, the minimum costs of the network, cover every axis of the recipe's hardware.
    `inputs` are the names of the model's inputs, `classes` the names of the classes from which tasks can
    choose, None if they are unknown. A batch is `adaptable` unless its model is a graph without
    Keras structure; it then has no `estimates`. `exceed` are the costs that the widened source must reach.
    `nodes` are ordered parents first. `source_seconds` and `preparing_seconds`, by `preparation_of`, are the
    expected times of the work for all nodes; 0 and empty if they are unknown.
    """

    number: int
    model_name: str
    dataset: DatasetConfig
    recipe: Recipe
    source_costs: dict[str, float]
    floor: dict[str, float]
    inputs: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None
    adaptable: bool = True
    estimates: EdgeEstimates | None = None
    exceed: dict[str, float]
    nodes: tuple[NodePlan, ...]
    source_seconds: float = 0.0
    preparing_seconds: dict[str, float] = Field(default_factory=dict)

    def prepared_task(self, node: NodePlan) -> TaskConfig | None:
        """Return the task that a node's algorithm prepares for; None if it prepares for all at once."""
        profile = self.estimates.profiles.get(node.algorithm) if self.estimates else None
        return None if profile is not None and profile.serves_tasks else node.task

    def preparation_of(self, node: NodePlan) -> str:
        """Return the name of a node's preparation: its algorithm, and its task if that matters."""
        task = self.prepared_task(node)
        return node.algorithm if task is None else f"{node.algorithm} for {task}"


@dataclass(frozen=True)
class BatchInputs:
    """The model, the data and the algorithm with its settings of a collective batch, as in its configs."""

    model: str
    dataset: DatasetConfig
    algorithm: str
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def common(self) -> dict[str, object]:
        """The parts of a config that all goals of the batch share."""
        dataset = self.dataset.model_dump(mode="json", exclude_defaults=True)
        algorithm = {"name": self.algorithm, "config": dict(self.settings)}
        return {"model": self.model, "dataset": dataset, "algorithm": algorithm}


@dataclass(frozen=True)
class BatchState:
    """A collective batch with all its results.

    Attributes:
        root: The root of the goal tree; None until it is ready.
        checkpoints: Index of a node -> its checkpoint.
        branches: Goal id -> branches, for multi-branch packages.
        reference: The source measured in LiteRT; None until it is measured.
        preparations: Name (`BatchPlan.preparation_of`) -> result of the preparation.
    """

    plan: BatchPlan
    root: SourceResult | None
    checkpoints: Mapping[int, AdaptResult]
    branches: Mapping[str, BranchResult] = field(default_factory=dict)
    reference: ReferenceResult | None = None
    preparations: Mapping[str, PrepareResult] = field(default_factory=dict)
