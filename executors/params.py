"""Settings of algorithms, `algorithm.config` in a config; they need no TensorFlow."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil, log
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mistify.config.layers import LayerRules
from mistify.config.porting import AUTO
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.parsing.validation import InvalidValue, problems_of
from mistify.plugins import plug_ins

__all__ = ["Params"]


class TrainingParams(BaseModel):
    """Settings of training, the same for every algorithm.

    Attributes:
        batch_size: Examples of a training step.
        optimizer: `sgd`, with Nesterov momentum and weight decay, `adam`, or `auto`: `adam` for networks
            without normalisation layers, unless a learning rate is given; otherwise `sgd`.
        learning_rate: The optimizer's highest learning rate, which an algorithm may scale to how far it has
            to go; by default one that suits the optimizer.
        distillation: Part of the loss that comes from the teacher's outputs.
        temperature: Softening of both outputs in distillation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    batch_size: int = Field(default=64, ge=1, le=4096)
    optimizer: Literal["auto", "sgd", "adam"] = "auto"
    learning_rate: float | None = Field(
        default=None, gt=0, le=1, description="a learning rate above 0 and up to 1", examples=[0.01]
    )
    distillation: float = Field(default=0.7, ge=0, le=1)
    temperature: float = Field(default=2.0, gt=0)


#: The entry points of plug-ins that make variants of blocks.
VARIANTS: Final = "mistify.variants"

#: A cut takes at least this share of the costs; a network is hardly hurt by less.
LEAST_CUT = 0.2


class Params(TrainingParams):
    """Settings that every algorithm takes in `algorithm.config`, including those of training.

    Attributes:
        source_steps: Steps that tune the source on the data before anything is cut.
        adapt_steps: Highest number of steps between a goal's parent and a network that meets its budget; with
            0, and 0 `tune_steps`, nothing is trained: the remaining layers are fitted to what they computed
            before.
        tune_steps: Steps that tune a network once it meets its budget.
        max_steps: Highest number of steps for one goal; tuning is repeated up to that while its accuracy is
            too low, and while a network above the source gains.
        schedule_interval: Steps between two schedulings of the structure losses (4.3: k).
        seed: Seed for everything random.
        layers: Rules for layers that must be left as they are, or keep some channels, by patterns of their
            names.
    """

    source_steps: int = Field(default=2400, ge=0)
    adapt_steps: int = Field(default=400, ge=0)
    tune_steps: int = Field(default=600, ge=0)
    max_steps: int = Field(default=3000, ge=1)
    schedule_interval: int = Field(default=200, ge=1)
    seed: int = Field(default=0, ge=0)
    layers: LayerRules = Field(
        default_factory=dict, description="rules by patterns of layers' names", examples=[{"stem*": "keep"}]
    )


class IterativePruningParams(Params):
    """Settings of an algorithm that cuts several times.

    Attributes:
        cuts: Highest number of iterations in an edge, each with a cut. A short edge takes fewer, and so fewer
            of the `adapt_steps`.
    """

    cuts: int = Field(default=8, ge=1)

    @property
    def steps_of_cut(self) -> int:
        """Training steps before each cut; 0 where nothing is trained until the budget is met."""
        return max(1, self.adapt_steps // self.cuts) if self.adapt_steps else 0

    def planned_cuts(self, distance: float) -> int:
        """Return the cuts of an edge along which costs fall by a factor: as few as take the least share each.

        Without training in between it is one; it is never more than the training steps.

        Args:
            distance: Costs at the start over costs at the end, above 1.
        """
        if not self.adapt_steps:
            return 1
        return min(self.cuts, self.adapt_steps, max(1, ceil(log(distance) / -log(1 - LEAST_CUT))))


class MorphNetParams(IterativePruningParams):
    """MorphNet's settings.

    Attributes:
        threshold: Importance below which a unit is cut, as a share of the mean in its channel group at the
            group's width in the source; it counts for the root of the layers that make the group.
        init_reg_strength: Loss of a unit per multiply-add of the network at the start of an edge, up to 0.03;
            the other costs are weighed so that each counts as much as the multiply-adds.
    """

    threshold: float = Field(default=0.1, ge=0, lt=1)
    init_reg_strength: float = Field(default=1e-9, ge=0)


class ChamNetParams(IterativePruningParams):
    """ChamNet's settings.

    Attributes:
        init_population: Candidates in a generation; as many are measured in each round of a search.
        crossover_rate: Share of the children that have two parents.
        mutation: Share of a child's genes that change.
        samples: Candidates cut from the source that the predictor learns first.
    """

    cuts: int = Field(default=3, ge=1)
    init_population: int = Field(default=10, ge=2, le=1000)
    crossover_rate: float = Field(default=0.7, ge=0, le=1)
    mutation: float = Field(default=0.08, ge=0, le=1)
    samples: int = Field(default=100, ge=0)


class RandomSearchParams(IterativePruningParams):
    """Random search's settings.

    Attributes:
        candidates: Architectures that are measured before each cut.
    """

    candidates: int = Field(default=30, ge=1, le=10_000)


class NestedParams(Params):
    """The settings of nested networks.

    Attributes:
        segment_steps: Training steps of each network that has others nested in it, once for all goals between
            its size and a quarter of that.
        tune_steps: Additional steps that tune the network of one goal.
    """

    segment_steps: int = Field(default=1200, ge=1)
    tune_steps: int = Field(default=0, ge=0)


def _different(amounts: tuple[float, ...]) -> tuple[float, ...]:
    if len({f"{amount:g}" for amount in amounts}) < len(amounts):
        raise InvalidValue(amounts, "each number once", "remove the duplicates")
    return amounts


def _maker(name: str) -> str:
    known = plug_ins(VARIANTS)
    if name in ("merge", "shrink"):
        raise InvalidValue(name, "the name of a plug-in", f'write "{name}" beside "variants"')
    if name not in known:
        expected = f"the name of a plug-in: {', '.join(known)}"
        raise InvalidValue(name, expected, f"install the plug-in with the entry point {VARIANTS}: {name}")
    return name


class AdaptiveNetParams(IterativePruningParams):
    """The settings of AdaptiveNet.

    Attributes:
        largest: The largest share of the parameters, and of the multiply-adds, of a block that can be
            divided.
        merge: Numbers of consecutive blocks that one block replaces.
        shrink: Shares of the channels that are left inside a block, or between several where one has none.
        variants: Further replacements of blocks: numbers by the names of plug-ins (`mistify.variants`).
        distil_steps: Training steps in which variants learn what the blocks compute that they replace.
        path_steps: Training steps of subnets, drawn at random, after that.
        blocks: Whether packages contain the blocks as well, so that devices can make subnets of their own.
        adapt_steps: The most steps in which the cheapest subnet is cut where it is beyond the limits.
        tune_steps: Additional steps that tune the network of one goal.
    """

    largest: float = Field(default=0.1, gt=0, le=1)
    merge: Annotated[tuple[Annotated[int, Field(ge=2)], ...], AfterValidator(_different)] = (2, 3)
    shrink: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], ...], AfterValidator(_different)] = (
        0.5,
        0.25,
    )
    variants: dict[
        Annotated[str, AfterValidator(_maker)], Annotated[tuple[float, ...], AfterValidator(_different)]
    ] = Field(default={}, description="numbers by the names of plug-ins", examples=[{"factored": [0.5]}])
    distil_steps: int = Field(default=600, ge=0)
    path_steps: int = Field(default=2400, ge=0)
    blocks: bool = False
    tune_steps: int = Field(default=0, ge=0)


#: The settings of Mistify's own algorithms, by their names.
BUILT_IN: Final[Mapping[str, type[Params]]] = {
    "morphnet": MorphNetParams,
    "chamnet": ChamNetParams,
    "nested": NestedParams,
    "adaptivenet": AdaptiveNetParams,
    "uniform": IterativePruningParams,
    "random": RandomSearchParams,
}

_PLACE: Final = "algorithm.config"


def parse_params(
    params_class: type[Params],
    config: Mapping[str, object],
    classes: Callable[[], Mapping[str, type[Params]]] = lambda: BUILT_IN,
) -> Params:
    """Return the settings of an algorithm.

    Args:
        params_class: The class of the settings; `Params` for those that all algorithms have.
        config: The value of `algorithm.config`.
        classes: Returns the settings of all algorithms by name, to say which algorithm has a setting that not
            all have.

    Raises:
        MistifyError: INVALID_CONFIG with all problems, by their places in the config.
    """
    try:
        return params_class.model_validate(config)
    except ValidationError as error:
        problems = problems_of(error, params_class, _PLACE, config)
        if params_class is Params:
            problems = [_with_owner(problem, classes()) for problem in problems]
        raise MistifyError(
            ErrorCode.INVALID_CONFIG, "the algorithm's settings are wrong", problems
        ) from error


def _with_owner(problem: Problem, classes: Mapping[str, type[Params]]) -> Problem:
    """Return a problem of `auto`; of a setting that only certain algorithms have, it names these."""
    setting = problem.place.removeprefix(f"{_PLACE}.")
    common = Params.model_fields.keys()
    owners = [name for name, own in classes.items() if setting in own.model_fields.keys() - common]
    if not owners:
        return problem
    return replace(
        problem,
        expected=f'with "{AUTO}", only settings of all algorithms; it belongs to {" and ".join(owners)}',
        fix=f'leave it out, or name the algorithm: "name": "{owners[0]}"',
    )
