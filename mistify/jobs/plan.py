"""The plan of a batch of configs before anything is computed: its goal tree, choices and predictions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.config.task import TaskConfig
from mistify.costs.budget import Budget, Costs
from mistify.costs.formats import AxisFormat


@dataclass(frozen=True)
class Estimate:
    """A predicted figure and its standard deviation."""

    mean: float
    deviation: float

    @property
    def margin(self) -> float:
        """Half the width of the 95 % interval around the mean."""
        return 2 * self.deviation

    def holds(self, figure: float) -> bool:
        """Check whether a figure is within the margin."""
        return abs(figure - self.mean) <= self.margin


@dataclass(frozen=True)
class Interval:
    """A predicted figure: with a probability of 95 % between `low` and `high`, of 50 % above `middle`."""

    middle: float
    low: float
    high: float

    def holds(self, figure: float) -> bool:
        """Check whether a figure is within the interval."""
        return self.low <= figure <= self.high


@dataclass(frozen=True)
class OutputEstimate:
    """The predicted score of one output, by its own metric."""

    output: str
    metric: Metric
    interval: Interval


@dataclass(frozen=True)
class PlannedEdge:
    """An edge of a goal tree: from a parent's network to a budget, for all goals with this budget.

    Attributes:
        goals: Ids of the goals with this budget and task.
        parent: The first goal of the parent; None for the (expanded) source.
        budget: Axis -> limit.
        algorithm: The algorithm that adapts the network; empty if nothing can be adapted.
        choice: Reason for the algorithm, for people.
        costs: Axis -> predicted cost of one inference.
        accuracy: Predicted, by the batch's metric; None without a basis for a prediction.
        targets: The strictest targets of these goals.
        outputs: The predicted score of each output; empty without a basis for a prediction.
        steps: The predicted number of training steps.
        seconds: The predicted time of the edge, including the packages of its goals.
        warning: Requirements likely to be missed, for people; empty if none.
        precisions: Goal id -> why the server chose its precision, for goals whose configs do not name one.
        task: The task of these goals; None for everything that the data teach.
    """

    goals: tuple[str, ...]
    parent: str | None
    budget: Budget
    algorithm: str
    choice: str
    costs: Costs
    accuracy: Interval | None
    targets: tuple[Target, ...]
    steps: int
    seconds: float
    outputs: tuple[OutputEstimate, ...] = ()
    warning: str = ""
    precisions: Mapping[str, str] = field(default_factory=dict)
    task: TaskConfig | None = None


@dataclass(frozen=True)
class PlannedPreparation:
    """The forecast of an algorithm's preparation for all of its edges.

    Attributes:
        algorithm: Its name, followed by the task if it prepares for a single task.
        steps: Training steps, or the number of steps that would take as long.
        seconds: The predicted time of the preparation.
    """

    algorithm: str
    steps: int
    seconds: float


@dataclass(frozen=True)
class PlannedBatch:
    """Configs that share model, dataset and algorithm, and are adapted together (4.3).

    Attributes:
        model: The model's name in configs.
        metric: The metric of all accuracies.
        source_costs: Costs of the model before adaptation.
        source_accuracy: The predicted accuracy of the tuned source; None without a basis for a prediction.
        source_outputs: Output -> predicted score of the tuned source; empty without a basis for a prediction.
        source_steps: Training steps of the source's tuning.
        source_seconds: The predicted time of the source's tuning.
        edges: Parents first.
        seconds: Predicted for the whole batch with the current number of workers.
        evidence: Basis of the predictions, for people.
        formats: Formats of costs added by the server's plug-ins.
        preparations: One for each algorithm that prepares.
        flips: Whether training flips images: the config leaves this open, and flips do not hurt the source.
        present_accuracy: Accuracy of the source before tuning, on a sample of the validation data; None if
            not measured.
        present_outputs: Output -> score of the source before tuning; empty if not measured.
        class_counts: Examples of each named class, by part of the data: "dataset.train: 12 cat and 10 dog".
        left_out: Files that are not read, by part of the data: "dataset.train: 12 .heic in cat".
        pacing: How many training steps fit into the time that the settings name, and what twice the time
            would bring, for people; empty without a time.
    """

    model: str
    metric: Metric
    source_costs: Costs
    source_accuracy: Interval | None
    source_steps: int
    source_seconds: float
    edges: tuple[PlannedEdge, ...]
    seconds: float
    evidence: str
    source_outputs: tuple[OutputEstimate, ...] = ()
    formats: tuple[AxisFormat, ...] = ()
    preparations: tuple[PlannedPreparation, ...] = ()
    flips: bool = False
    present_accuracy: float | None = None
    present_outputs: tuple[OutputScore, ...] = ()
    class_counts: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    pacing: str = ""


@dataclass(frozen=True)
class OutOfReach:
    """A limit that no network cut from the model can meet.

    Attributes:
        goal: The id of the goal.
        limit: The key in configs: `FLOP`.
        value: The text or number in the config.
        nearest: The nearest limit that can be met, as written in a config.
    """

    goal: str
    limit: str
    value: str
    nearest: str


@dataclass(frozen=True)
class Plan:
    """The plan of a batch of configs; its trees omit goals that are out of reach."""

    batches: tuple[PlannedBatch, ...]
    out_of_reach: tuple[OutOfReach, ...] = ()

    @property
    def seconds(self) -> float:
        """The predicted time of the job."""
        return sum(batch.seconds for batch in self.batches)
