"""Plans of batches: their goal trees and checkpoints."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mistify.config.data.dataset import DatasetConfig
from mistify.config.data.targets import Target
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
    """A node of a goal tree: one budget and all its goals.

    `targets` are the strictest of its goals' targets. `parent` is None for a child of the source. `algorithm`
    adapts the parent's network to this node, and `choice` gives the reason; it is empty while none is chosen,
    and if the model cannot be adapted. `foreseen` is the expected loss relative to the tuned source's
    accuracy after a round of tuning; None if the model cannot be adapted.
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


class BatchPlan(Message):
    """A collective batch as planned at submission; later, only its tree and hardware grow.

    `model_name` and `dataset` are the config's `model` and `dataset`; the `recipe` has the resolved ones.
    `source_costs` and `floor`, the minimum costs of the network, cover every axis of the recipe's hardware.
    `inputs` are the names of the model's inputs. A batch is `adaptable` unless its model is a graph without
    Keras structure; it then has no `estimates`. `exceed` are the costs that the widened source must reach.
    `nodes` are ordered parents first.
    """

    number: int
    model_name: str
    dataset: DatasetConfig
    recipe: Recipe
    source_costs: dict[str, float]
    floor: dict[str, float]
    inputs: tuple[str, ...] = ()
    adaptable: bool = True
    estimates: EdgeEstimates | None = None
    exceed: dict[str, float]
    nodes: tuple[NodePlan, ...]


@dataclass(frozen=True)
class BatchState:
    """A collective batch with all its results.

    Attributes:
        root: The root of the goal tree; None until it is ready.
        checkpoints: Index of a node -> its checkpoint.
        branches: Goal id -> branches, for multi-branch packages.
        reference: The source measured in LiteRT; None until it is measured.
        preparations: Algorithm -> result of its preparation for all goals.
    """

    plan: BatchPlan
    root: SourceResult | None
    checkpoints: Mapping[int, AdaptResult]
    branches: Mapping[str, BranchResult] = field(default_factory=dict)
    reference: ReferenceResult | None = None
    preparations: Mapping[str, PrepareResult] = field(default_factory=dict)
