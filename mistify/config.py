"""The porting configuration (paper, Figure 3) as models; every error names its JSON path."""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StringConstraints,
    ValidationError,
    create_model,
    model_validator,
)

from mistify.axes import Axis, axis_of, registry
from mistify.branches import BranchesConfig
from mistify.budget import Costs, source_axis
from mistify.compression import CompressionConfig
from mistify.dataset import DataSettings
from mistify.errors import Problem, invalid_config
from mistify.hardware import HOST, HardwareConfig
from mistify.metric import Metric
from mistify.profiles import NominalProfile, device_profile_name
from mistify.quantities import (
    Quantity,
    format_share,
    parse_figure,
    parse_share,
)
from mistify.quantization import Quantization, QuantizationConfig
from mistify.relaxed_json import JsonError, read_json
from mistify.training import TuningConfig
from mistify.validation import InvalidValue, Settings, json_path, problems_of, shown, unknown_name

#: The algorithm that stands for the one that suits each edge.
AUTO = "auto"

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def is_id(given: str) -> bool:
    """Whether a goal can be called so: its id names a directory of the output."""
    return bool(_ID.fullmatch(given) and given.strip("."))


def _check_id(given: str) -> str:
    if is_id(given):
        return given
    raise InvalidValue(
        given,
        "an id that can name a directory",
        'use up to 64 letters, digits, ".", "_" and "-", not only dots',
    )


Text = Annotated[str, StringConstraints(min_length=1, max_length=1024, strip_whitespace=True)]
Figure = Annotated[float, PlainValidator(parse_figure), PlainSerializer(format_share)]


class DatasetConfig(DataSettings):
    """Where the data is: names that the server resolves below its data roots; and how it is used."""

    train: Text = Field(description="the name of the training data", examples=["cifar10/train.npz"])
    test: Text = Field(description="the name of the test data", examples=["cifar10/test.npz"])

    @property
    def settings(self) -> DataSettings:
        """How the data is used."""
        return DataSettings(**{name: getattr(self, name) for name in DataSettings.model_fields})


class AlgorithmConfig(Settings):
    """The adaptation algorithm (4.2), its name in lower case, and its settings; a name alone will do.

    `auto` chooses one for each edge of the goal tree; its settings are those that all algorithms have.
    """

    name: Annotated[Text, AfterValidator(str.lower)] = Field(
        default=AUTO, description="the name of an algorithm", examples=["morphnet"]
    )
    config: dict[str, object] = Field(
        default_factory=dict,
        description="an object with the algorithm's settings",
        examples=[{"threshold": 0.1}],
    )

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given


class AdaptationGoal(Settings):
    """What is asked of the adapted network (4.1): limits on its costs, and an accuracy to reach.

    Each axis that is known here is a field (`FLOP`, `latency`, ...); others may be known to the server.
    """

    model_config = ConfigDict(extra="allow")

    accuracy: Figure | None = None

    @property
    def limits(self) -> dict[str, Quantity]:
        """The limits as they were given, by the key of their axis; without those that are not known here."""
        given = {key: getattr(self, key) for key in registry().axes}
        return {key: limit for key, limit in given.items() if limit is not None}

    @model_validator(mode="after")
    def _limits_something(self) -> "AdaptationGoal":
        if not self.limits and not self.model_extra:
            known = registry().axes
            raise InvalidValue(
                self.model_dump(exclude_none=True),
                f"a limit on at least one of {', '.join(known)}",
                'add one, for example "FLOP": "0.5x"',
            )
        return self


def _limit_on(axis: Axis) -> Any:
    return Annotated[Quantity, PlainValidator(axis.kind.parse), PlainSerializer(axis.kind.format)] | None


def _limit_on_broken(name: str, reason: str) -> Any:
    def refuse(given: object) -> None:
        raise InvalidValue(
            given, "the name of a metric that can be used", f"mend the plug-in {name}: {reason}"
        )

    return Annotated[None, PlainValidator(refuse)]


if TYPE_CHECKING:
    _KnownGoal = AdaptationGoal
else:
    _KnownGoal = create_model(
        "AdaptationGoal",
        __base__=AdaptationGoal,
        **{name: (_limit_on_broken(name, why), None) for name, why in registry().broken.items()},
        **{key: (_limit_on(axis), None) for key, axis in registry().axes.items()},
    )


class PortingConfig(Settings):
    """One goal for one model: an element of the list in Figure 3."""

    id: Annotated[str, AfterValidator(_check_id)] = Field(
        description="an id that can name a directory", examples=["half-flop"]
    )
    model: Text = Field(description="the name of a model that the server knows", examples=["digits-resnet"])
    dataset: DatasetConfig = Field(
        description='an object with "train" and "test"',
        examples=[{"train": "cifar10/train.npz", "test": "cifar10/test.npz"}],
    )
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    adaptation_goal: _KnownGoal = Field(
        description="an object with at least one limit", examples=[{"FLOP": "0.5x"}]
    )
    hardware: HardwareConfig | None = None
    quantization: QuantizationConfig = Field(default_factory=QuantizationConfig)
    branches: BranchesConfig | None = None
    compression: CompressionConfig | None = None
    tuning: TuningConfig = Field(default_factory=TuningConfig)

    @model_validator(mode="after")
    def _branches_have_a_precision(self) -> "PortingConfig":
        if self.branches and self.quantization.precision is Quantization.INT8_QAT:
            raise InvalidValue(
                self.quantization.precision.value,
                "a precision without training, which would give each branch first layers of its own",
                'ask for the precision "int8", or leave "branches" out',
            )
        if self.branches and self.quantization.inputs == "int8":
            raise InvalidValue(
                "int8 inputs", "float32 inputs: between choices all is float32", 'leave "inputs" out'
            )
        return self

    @model_validator(mode="after")
    def _compressed_to_the_end(self) -> "PortingConfig":
        if self.compression and self.branches:
            raise InvalidValue(
                str(self.compression), "no compression of branches", "leave one of the two out"
            )
        precision = self.quantization.precision
        if self.compression and precision is Quantization.INT8_QAT:
            raise InvalidValue(
                {"quantization": precision.value, "compression": str(self.compression)},
                "a precision without training, which would undo the compression",
                'ask for the precision "int8", or leave "compression" out',
            )
        return self

    @model_validator(mode="after")
    def _trained_as_it_is_served(self) -> "PortingConfig":
        precision = self.quantization.precision
        beside = {
            "quantization": None if precision in (Quantization.NONE, Quantization.AUTO) else precision.value,
            "branches": self.branches and self.branches.count,
            "compression": self.compression and str(self.compression),
        }
        others = {name: value for name, value in beside.items() if value is not None}
        if self.tuning.trainable != "none" and others:
            raise InvalidValue(
                {"tuning": self.tuning.trainable, **others},
                "float32 without branches or compression where a package is to be trained on the device",
                f'leave out "tuning", or {" and ".join(map(shown, others))}',
            )
        return self

    @property
    def profile(self) -> NominalProfile | None:
        """The hardware that a latency goal means; the server's own machine where none is named.

        None where that is a device that was measured, of which the server knows.
        """
        return HOST if self.hardware is None else self.hardware.nominal

    @property
    def hardware_name(self) -> str:
        """The name of that hardware's profile; a measured device has one for each precision."""
        if self.profile is not None:
            return self.profile.name
        return device_profile_name(self.device or "", self.quantization.precision.integer)

    @property
    def device(self) -> str | None:
        """The name of the measured device that a latency goal means; None where it means none."""
        return None if self.hardware is None or self.profile is not None else self.hardware.name

    def limits(self) -> dict[str, Quantity]:
        """The goal's limits by cost axis (`mistify.axes`), absolute or relative to the source."""
        axes, precision = registry().axes, self.quantization.precision
        return {
            axes[key].named(self.hardware_name, precision): axes[key].limit(asked)
            for key, asked in self.adaptation_goal.limits.items()
        }


@dataclass(frozen=True)
class CollectiveBatch:
    """Configs that share model, dataset and algorithm and are adapted together (4.3).

    `indices` are the places of the configs in the file they came from, for the paths of errors.
    """

    model: str
    dataset: DatasetConfig
    algorithm: AlgorithmConfig
    configs: tuple[PortingConfig, ...]
    indices: tuple[int, ...]


def parse_batch(
    text: str, source: str = "the config", *, server_knows_more: bool = False
) -> tuple[PortingConfig, ...]:
    """Read a batch of configs: a JSON list as in Figure 3, or a single object, read as a list of one.

    Args:
        text: JSON, in which comments and trailing commas are allowed.
        source: what errors call the text, such as its file name.
        server_knows_more: whether limits on axes that are not known here are kept, for a server to judge.

    Raises:
        MistifyError: INVALID_CONFIG with every problem of the text. A value that already has a problem
            as JSON (a duplicate key, a number without end) is not complained about twice.
    """
    try:
        value, problems = read_json(text)
    except JsonError as error:
        raise invalid_config([error.problem], source) from error
    entries = value if isinstance(value, list) else [value]
    if not entries:
        problems.append(Problem("the list", "no config", "at least one", "add a config"))
    known = {problem.place for problem in problems}
    configs: dict[int, PortingConfig] = {}
    for index, entry in enumerate(entries):
        try:
            configs[index] = PortingConfig.model_validate(entry)
        except ValidationError as error:
            found = problems_of(error, PortingConfig, f"[{index}]")
            problems += [problem for problem in found if problem.place not in known]
    if not server_knows_more:
        problems += _unknown_limits(entries)
    problems += [*_repeated_ids(entries), *_above_one(entries), *_unequal_hardware(configs)]
    if problems:
        raise invalid_config(problems, source)
    return tuple(configs.values())


def _repeated_ids(entries: Sequence[object]) -> Iterable[Problem]:
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        given = entry.get("id") if isinstance(entry, dict) else None
        if isinstance(given, str) and first.setdefault(given.casefold(), index) != index:
            expected = f"an id unlike that of [{first[given.casefold()]}], also without regard to case"
            yield InvalidValue(given, expected, "rename one of them").problem(f"[{index}].id")


def _unknown_limits(entries: Sequence[object]) -> Iterable[Problem]:
    known = _KnownGoal.model_fields
    for index, entry in enumerate(entries):
        goal = entry.get("adaptation_goal") if isinstance(entry, dict) else None
        for key in goal if isinstance(goal, dict) else ():
            if key not in known:
                place = json_path([key], f"[{index}].adaptation_goal")
                yield Problem(place, f"the key {shown(key)}", *unknown_name(key, known))


def _above_one(entries: Sequence[object]) -> Iterable[Problem]:
    """Accuracies that are no share, and no limit of a mean squared error."""
    for index, entry in enumerate(entries):
        parts = (entry.get(key) for key in ("adaptation_goal", "dataset")) if isinstance(entry, dict) else ()
        match list(parts):
            case [{"accuracy": _}, {"metric": Metric.MSE}]:
                continue
            case [{"accuracy": given}, _] if _is_figure(given):
                try:
                    parse_share(given)
                except InvalidValue as error:
                    fix = f'{error.fix}, or ask for "metric": "mse" in the dataset'
                    yield InvalidValue(given, error.expected, fix).problem(
                        f"[{index}].adaptation_goal.accuracy"
                    )


def _is_figure(given: object) -> bool:
    """Whether it is one at all: what is none has been told."""
    with suppress(InvalidValue):
        parse_figure(given)
        return True
    return False


def _unequal_hardware(configs: dict[int, PortingConfig]) -> Iterable[Problem]:
    first: dict[str, tuple[int, NominalProfile | None]] = {}
    for index, config in configs.items():
        profile = config.profile
        name = config.device if profile is None else profile.name
        earlier, agreed = first.setdefault(name or "", (index, profile))
        if profile != agreed:
            given = "no figures" if profile is None else str(profile)
            expected = f"the same figures for {name} as in [{earlier}]"
            problem = InvalidValue(given, expected, "give one of them another name")
            yield problem.problem(f"[{index}].hardware")


def collective_batches(configs: Sequence[PortingConfig]) -> list[CollectiveBatch]:
    """The configs by model, dataset and algorithm (with its settings), in order of first appearance."""
    together: dict[tuple[str, DatasetConfig, str, str], list[int]] = {}
    for index, config in enumerate(configs):
        settings = json.dumps(config.algorithm.config, sort_keys=True)
        key = (config.model, config.dataset, config.algorithm.name, settings)
        together.setdefault(key, []).append(index)
    return [
        CollectiveBatch(
            model=configs[indices[0]].model,
            dataset=configs[indices[0]].dataset,
            algorithm=configs[indices[0]].algorithm,
            configs=tuple(configs[index] for index in indices),
            indices=tuple(indices),
        )
        for indices in together.values()
    ]


def profiles_of(configs: Iterable[PortingConfig]) -> list[NominalProfile]:
    """The nominal profiles that the goals of one `parse_batch` need, each once."""
    return list(dict.fromkeys(config.profile for config in configs if config.profile is not None))


def goal_budget(config: PortingConfig, source_costs: Costs) -> dict[str, float]:
    """The goal's limits as a budget, relative ones resolved against the source model's costs in float32.

    Raises:
        KeyError: a relative limit on an axis that `source_costs` does not have.
    """
    return {
        axis: limit.resolve(source_costs[source_axis(axis)]) if limit.relative else limit.value
        for axis, limit in config.limits().items()
    }


def goal_path(axis: str) -> str:
    """Where in a config a cost axis is limited: `adaptation_goal.FLOP` for `flops`."""
    return f"adaptation_goal.{axis_of(axis).key}"
