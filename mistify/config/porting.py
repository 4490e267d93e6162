"""The porting configuration of one goal (paper, Figure 3); every error names its JSON path."""

import re
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from mistify.config.adaptation_goal import KnownGoal
from mistify.config.algorithm import AlgorithmConfig
from mistify.config.data.dataset import DatasetConfig, generated_count
from mistify.config.files import FileField, FileForm, PathKind
from mistify.config.hardware import HardwareConfig
from mistify.config.package.branches import BranchesConfig
from mistify.config.package.compression import CompressionConfig
from mistify.config.package.exits import ExitsConfig
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.package.tuning import TuningConfig
from mistify.config.task import TaskConfig
from mistify.costs.axes import axis_registry
from mistify.costs.budget import LATENCY, MEMORY, SIZE, quantity_of
from mistify.costs.catalogue import HOST, host_profile_name, is_host
from mistify.costs.profiles import NominalProfile, device_profile_name
from mistify.costs.quantization import PRECISIONS, Quantization
from mistify.machine import MOST_THREADS
from mistify.parsing.quantities import Quantity
from mistify.parsing.rechecking import FIELDS_ALONE
from mistify.parsing.validation import InvalidValue, Settings, Text, mistake_of, shown, together

#: Maximum length of an id, in characters.
LONGEST_ID: Final = 64

_ID: Final = re.compile(rf"[A-Za-z0-9._-]{{1,{LONGEST_ID}}}")


def is_id(text: str) -> bool:
    """Check whether a text can be the id of a goal, which names a directory of the output."""
    return bool(_ID.fullmatch(text) and text.strip("."))


def _check_id(text: str) -> str:
    if is_id(text):
        return text
    raise InvalidValue(
        text,
        "an id that can name a directory",
        'use up to 64 letters, digits, ".", "_" and "-", not only dots',
    )


def _listed(precisions: Sequence[Quantization]) -> str:
    return " or ".join(precision.value for precision in precisions)


class PortingConfig(Settings):
    """One goal for one model: an element of the list in Figure 3.

    Attributes:
        id: The goal's name, and the name of its output directory.
        model: The pretrained network: a file, the directory of a SavedModel, an architecture, or the name of
            a model that the server knows.
        dataset: The data for training, validation and testing.
        algorithm: How networks are adapted; a name alone is enough.
        task: The task of the network, if it is not everything that the data teach: properties, or some of a
            classifier's classes.
        adaptation_goal: The requirements on the network: limits on its costs, and a target accuracy.
        hardware: The device that a latency limit refers to; by default, the server's machine. A name alone
            is enough.
        threads: The number of threads with which LiteRT runs the package.
        quantization: The precision of the package; a name alone is enough. By default, the server chooses one
            if latency, memory or size is limited; otherwise it is "none".
        branches: Networks between which the package switches on the device; by default, there is only one.
        exits: Places at which the network may answer early; by default, there are none.
        compression: Zero or shared weights; by default, there is no compression.
        tuning: How the package is trained on the device.
    """

    id: Annotated[str, AfterValidator(_check_id)] = Field(
        description="an id that can name a directory", examples=["half-flop"]
    )
    model: Annotated[Text, FileField(FileForm.MODEL, PathKind.EITHER)] = Field(
        description="the name of a model that the server knows", examples=["digits-resnet"]
    )
    dataset: DatasetConfig = Field(
        description='an object with "train" and "test", or with "unlabelled" inputs',
        examples=[{"train": "cifar10/train.npz", "test": "cifar10/test.npz"}],
    )
    algorithm: AlgorithmConfig = Field(default_factory=AlgorithmConfig)
    task: TaskConfig | None = Field(
        default=None,
        description='a list of properties, the name of a task, or an object with "classes"',
        examples=[{"classes": ["cat", "dog"]}],
    )
    adaptation_goal: KnownGoal = Field(
        description="an object with at least one limit", examples=[{"FLOP": "0.5x"}]
    )
    hardware: HardwareConfig | None = None
    threads: int = Field(
        default=1,
        strict=True,
        ge=1,
        le=MOST_THREADS,
        description=f"a number of threads from 1 to {MOST_THREADS}",
        examples=[4],
    )
    quantization: QuantizationConfig = Field(default_factory=QuantizationConfig)
    branches: BranchesConfig | None = None
    exits: ExitsConfig | None = None
    compression: CompressionConfig | None = None
    tuning: TuningConfig = Field(default_factory=TuningConfig)

    @model_validator(mode="after")
    def _check_combinations(self, info: ValidationInfo) -> "PortingConfig":
        if info.context == FIELDS_ALONE:
            return self
        checks = (
            self._check_branches,
            self._check_exits,
            self._check_accuracy,
            self._check_compression,
            self._check_tuning,
            self._check_task,
        )
        if mistakes := list(filter(None, map(mistake_of, checks))):
            raise together(type(self).__name__, (((), mistake) for mistake in mistakes))
        return self

    def _check_branches(self) -> None:
        if self.branches and self.quantization.precision is Quantization.INT8_QAT:
            raise InvalidValue(
                self.quantization.precision.value,
                "a precision without training, as training would give each branch its own first layers",
                'ask for the precision "int8", or leave "branches" out',
            )
        if self.branches and self.quantization.integer_inputs:
            raise InvalidValue(
                "int8 inputs", "float32 inputs, because branches share float32 layers", 'leave "inputs" out'
            )

    def _check_exits(self) -> None:
        precision = self.quantization.precision
        beside = {
            "quantization": precision.value if precision is Quantization.INT8_QAT else None,
            "inputs": "int8" if self.quantization.integer_inputs else None,
            "compression": self.compression and str(self.compression),
        }
        others = {name: value for name, value in beside.items() if value is not None}
        if self.exits and others:
            raise InvalidValue(
                {"exits": str(self.exits), **others},
                "exits of a network that packaging does not train, with float inputs",
                f'leave out "exits", or {" and ".join(map(shown, others))}',
            )

    def _check_accuracy(self) -> None:
        test, accuracy = self.dataset.test, self.adaptation_goal.accuracy
        labelled = test is not None and not generated_count(test)
        if accuracy is not None and labelled and not self.dataset.has_validation_labels:
            raise InvalidValue(
                {"accuracy": accuracy},
                "no accuracy target when only the test data have labels: they must not influence choices",
                'name a file with labels as "validation", or leave "accuracy" out',
            )

    def _check_compression(self) -> None:
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

    def _check_tuning(self) -> None:
        precision = self.quantization.precision
        beside = {
            "quantization": None if precision in (Quantization.NONE, Quantization.AUTO) else precision.value,
            "branches": self.branches and self.branches.count,
            "compression": self.compression and str(self.compression),
        }
        others = {name: value for name, value in beside.items() if value is not None}
        if self.tuning.adaptation and precision.integer:
            raise InvalidValue(
                {"tuning": {"adaptation": True}, "quantization": precision.value},
                "activations in floats, as adaptation without labels needs: ranges of integers are fixed",
                'ask for "dynamic" or "float16", or leave "adaptation" out',
            )
        if self.tuning.trainable != "none" and others:
            raise InvalidValue(
                {"tuning": self.tuning.trainable, **others},
                "float32 without branches or compression for a package that is trained on the device",
                f'leave out "tuning", or {" and ".join(map(shown, others))}',
            )

    def _check_task(self) -> None:
        precision = self.quantization.precision
        beside = {
            "quantization": precision.value if precision is Quantization.INT8_QAT else None,
            "branches": self.branches and self.branches.count,
            "tuning": None if self.tuning.trainable == "none" else self.tuning.trainable,
        }
        others = {name: value for name, value in beside.items() if value is not None}
        if self.task is not None and others:
            raise InvalidValue(
                {"task": str(self.task), **others},
                "a task without branches, tuning on the device, or training for int8",
                f'leave out "task", or {" and ".join(map(shown, others))}',
            )

    @model_validator(mode="after")
    def _check_precision(self) -> "PortingConfig":
        runs = self.precisions
        named = self.quantization.precision
        if self.tuning.trainable != "none" and Quantization.NONE not in runs:
            raise InvalidValue(
                {"tuning": self.tuning.trainable, "hardware": self.hardware_name},
                f"no training on the device, which needs float32: {self.hardware_name} runs {_listed(runs)}",
                'leave "tuning" out, or name other hardware',
            )
        if self.tuning.adaptation and all(each.integer for each in runs):
            raise InvalidValue(
                {"tuning": {"adaptation": True}, "hardware": self.hardware_name},
                f"no adaptation, which needs floats: {self.hardware_name} runs {_listed(runs)}",
                'leave "adaptation" out, or name other hardware',
            )
        if "quantization" in self.model_fields_set and named not in (Quantization.AUTO, *runs):
            raise InvalidValue(
                named.value,
                f"a precision that {self.hardware_name} runs: {_listed(runs)}",
                f'write "{runs[0].value}", leave "quantization" out, or name other hardware',
            )
        return self

    def check_answers(self) -> None:
        """Check that the data answer the task if it has properties, and only then.

        Not applicable to configs that use the data of a job.

        Raises:
            InvalidValue: They do not.
        """
        of_properties = self.task is not None and bool(self.task.properties)
        if of_properties and self.dataset.tasks is None:
            raise InvalidValue(
                str(self.task),
                'data that answer tasks, whose properties are in a file named by "dataset.tasks"',
                'add "tasks": "tasks.json" to "dataset", or leave "task" out',
            )
        if self.dataset.tasks is not None and not of_properties:
            raise InvalidValue(
                None if self.task is None else str(self.task),
                "a task with properties, as the data answer one task or another",
                'add a task, for example "task": ["exactly:2", "odd"], or leave "tasks" out of "dataset"',
            )

    @property
    def profile(self) -> NominalProfile | None:
        """The hardware that a latency limit refers to; the server's own machine if none is named.

        It has the goal's number of threads. None for a measured device, which only the server knows.
        """
        nominal = HOST if self.hardware is None else self.hardware.nominal
        return None if nominal is None else nominal.with_threads(self.threads)

    @property
    def hardware_name(self) -> str:
        """The name of that hardware's profile; a measured device has a profile for each precision."""
        if self.profile is not None:
            return self.profile.name
        return device_profile_name(self.device or "", self.quantization.precision.integer, self.threads)

    @property
    def device(self) -> str | None:
        """The name of the measured device that a latency limit refers to; None for other hardware."""
        return None if self.hardware is None or self.profile is not None else self.hardware.name

    @property
    def precisions(self) -> tuple[Quantization, ...]:
        """The precisions that the goal's hardware runs."""
        return PRECISIONS if self.profile is None else self.profile.precisions

    @property
    def leaves_precision(self) -> bool:
        """True if the server chooses the precision: on request, or by default if the choice matters.

        By default it matters if latency, memory or size is limited, unless the package is to be trained on
        the device, or if the hardware does not run all precisions.
        """
        if "quantization" in self.model_fields_set:
            return self.quantization.precision is Quantization.AUTO
        if self.precisions != PRECISIONS:
            return True
        depends = {quantity_of(axis) for axis in self.limits()} & {LATENCY, MEMORY, SIZE}
        return bool(depends) and self.tuning.trainable == "none"

    def limits(self) -> dict[str, Quantity]:
        """Return the limits by cost axis (`mistify.costs.axes`), absolute or relative to the source."""
        axes, precision, hardware = axis_registry().axes, self.quantization.precision, self.hardware_name
        if is_host(hardware):
            hardware = host_profile_name(precision, self.threads)
        return {
            axes[key].named(hardware, precision, self.quantization.integer_inputs): axes[key].limit(asked)
            for key, asked in self.adaptation_goal.limits.items()
        }
