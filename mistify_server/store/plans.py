"""Plans of batches: their goal trees, and the checkpoints that were made for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

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

    `task` is None for all that the data teach.

    `targets` are the strictest of its goals'; `parent` is None for a child of the source. `algorithm`
    leads there from the parent, for the reason that `choice` gives; it is empty while none is chosen, and
    where nothing can be adapted. `foreseen` is the share of the tuned source's accuracy that it is expected
    to lose after a round of tuning; None where nothing can be adapted.
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


class BatchPlan(Message):
    """A collective batch as planned at submission; later only its tree and its hardware grow.

    `model_name` and `dataset` are the config's `model` and `dataset`; the `recipe` has what they stand for
    here. `source_costs` and `floor`, the least that the network can become, cover every axis of the recipe's
    hardware; `inputs` are the model's, by name, and `classes` those that tasks can choose from, None where
    that is not known. A batch is `adaptable` unless its model is a graph without
    Keras structure, and then has no `estimates`. `exceed` are the costs that the widened source has to reach;
    `nodes` come parents first.
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

    def prepared_task(self, node: NodePlan) -> TaskConfig | None:
        """Return the task that a node's algorithm prepares for; None where it prepares for all at once."""
        profile = self.estimates.profiles.get(node.algorithm) if self.estimates else None
        return None if profile is not None and profile.serves_tasks else node.task

    def preparation_of(self, node: NodePlan) -> str:
        """Return the name of the preparation that a node needs: its algorithm, and its task if it counts."""
        task = self.prepared_task(node)
        return node.algorithm if task is None else f"{node.algorithm} for {task}"


@dataclass(frozen=True)
class BatchState:
    """A collective batch with all its results.

    Attributes:
        plan: The plan made at submission.
        root: The root of its goal tree.
        checkpoints: By node index.
        branches: Goal -> branches, for multi-branch packages.
        reference: The source measured in LiteRT; None until then.
        preparations: Name (`BatchPlan.preparation_of`) -> result of the preparation.
    """

    plan: BatchPlan
    root: SourceResult | None
    checkpoints: Mapping[int, AdaptResult]
    branches: Mapping[str, BranchResult] = field(default_factory=dict)
    reference: ReferenceResult | None = None
    preparations: Mapping[str, PrepareResult] = field(default_factory=dict)
