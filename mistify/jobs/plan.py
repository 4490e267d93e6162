"""What is expected of a batch of configs before anything is computed: its goal tree, choices, predictions."""

from dataclasses import dataclass

from mistify.config.metric import Metric
from mistify.costs.budget import Budget, Costs
from mistify.costs.formats import AxisFormat


@dataclass(frozen=True)
class Estimate:
    """A figure that is predicted, and the standard deviation of that."""

    mean: float
    deviation: float

    @property
    def margin(self) -> float:
        """How far off the mean the figure is likely to be, 19 times of 20."""
        return 2 * self.deviation

    def holds(self, figure: float) -> bool:
        """Check whether a figure is within the margin."""
        return abs(figure - self.mean) <= self.margin


@dataclass(frozen=True)
class PlannedEdge:
    """An edge of a goal tree: from its parent's network to a budget, with all goals that have set it.

    Attributes:
        goals: Their ids.
        parent: The first goal of the parent's, None for the (expanded) source.
        budget: The limits.
        algorithm: Which adapts it, empty where nothing can be adapted.
        choice: Why that one, in words.
        costs: What the network will cost, about.
        accuracy: What it will reach, about, by the batch's metric; None where nobody knows.
        accuracy_target: The most that one of the goals asks for.
        steps: Of training.
        seconds: What the edge takes, with the packages of its goals.
        warning: What is likely to be missed, in words; empty where nothing is.
    """

    goals: tuple[str, ...]
    parent: str | None
    budget: Budget
    algorithm: str
    choice: str
    costs: Costs
    accuracy: Estimate | None
    accuracy_target: float | None
    steps: int
    seconds: float
    warning: str = ""


@dataclass(frozen=True)
class PlannedBatch:
    """Configs that share model, dataset and algorithm, and are adapted together (4.3).

    Attributes:
        model: As configs name it.
        metric: What `accuracy` is.
        source_costs: Of the model as it comes.
        source_accuracy: Of the source, tuned on the data; None where nobody knows.
        source_steps: Which tune it.
        source_seconds: What the source takes, with what algorithms prepare.
        edges: Parents first.
        seconds: What the whole batch takes, with as many workers as there are.
        evidence: What predictions rest on, in words.
        formats: How to read the costs that plug-ins of the server have added.
    """

    model: str
    metric: Metric
    source_costs: Costs
    source_accuracy: Estimate | None
    source_steps: int
    source_seconds: float
    edges: tuple[PlannedEdge, ...]
    seconds: float
    evidence: str
    formats: tuple[AxisFormat, ...] = ()


@dataclass(frozen=True)
class OutOfReach:
    """A limit that no network cut from the model can meet.

    Attributes:
        goal: The id of the goal.
        limit: Which one, as configs call it: `FLOP`.
        given: As it was given.
        nearest: The nearest that can be met, as a config takes it.
    """

    goal: str
    limit: str
    given: str
    nearest: str


@dataclass(frozen=True)
class Plan:
    """A batch of configs, with the goals that cannot be met, which the trees leave out."""

    batches: tuple[PlannedBatch, ...]
    out_of_reach: tuple[OutOfReach, ...] = ()

    @property
    def seconds(self) -> float:
        """What the job takes."""
        return sum(batch.seconds for batch in self.batches)
