"""The `dataset` of a config: the names of the data, and their settings."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mistify.config.data.code import CodeFile, with_code_apart
from mistify.config.data.loss import LossName
from mistify.config.data.metric import Metric, known_metrics
from mistify.config.data.preparation import File, InputScaling, Labels, Positive, Preparation
from mistify.config.files import FileField, FileForm, PathKind
from mistify.parsing.validation import InvalidValue, Settings, Text, unknown_name

#: Prefix of the number of examples to generate.
GENERATED: Final = "generated:"
MOST_GENERATED: Final = 1_000_000

#: The largest share of the training data that can be held out for validation.
_MOST_HELD_OUT: Final = 0.5

ClassWeights: TypeAlias = Literal["balanced"] | tuple[Positive, ...]


def _validation(raw: object) -> float | str:
    if isinstance(raw, str) and raw.strip() and not raw.startswith(GENERATED):
        return raw.strip()
    if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 < raw <= _MOST_HELD_OUT:
        return float(raw)
    raise InvalidValue(
        raw,
        f"a share of the training data above 0 and up to {_MOST_HELD_OUT}, or the name of a file",
        "for example 0.1",
    )


def _metric(raw: object) -> Metric:
    with suppress(ValueError):
        if isinstance(raw, str):
            return Metric(raw)
    raise InvalidValue(raw, *unknown_name(str(raw), known_metrics()))


def _output_metric(raw: object) -> Metric:
    names = [name for name in known_metrics() if not Metric(name).of_all_outputs]
    with suppress(ValueError):
        metric = Metric(str(raw))
        if isinstance(raw, str) and not metric.of_all_outputs:
            return metric
    raise InvalidValue(raw, *unknown_name(str(raw), names))


_IN_CODE: Final = FileField(FileForm.CODE)

OutputMetric: TypeAlias = Annotated[Metric, BeforeValidator(_output_metric), _IN_CODE]
DataName: TypeAlias = Annotated[Text, FileField(FileForm.DATA, PathKind.EITHER)]
Validation: TypeAlias = Annotated[float | str, PlainValidator(_validation), FileField(kind=PathKind.EITHER)]


class TextSettings(Settings):
    """The conversion of text to token ids; 0 is padding.

    Attributes:
        vocabulary: A file with one token per line; its id is the number of the line, from 0.
        hashing: Instead of a vocabulary: maps tokens to ids 1 to `hashing - 1` by a hash.
        length: Tokens per example, if the model does not fix it; longer texts are truncated.
    """

    vocabulary: File | None = Field(
        default=None, description="the name of a file with a token on each line", examples=["vocab.txt"]
    )
    hashing: int | None = Field(default=None, ge=2, description="a number of ids", examples=[20_000])
    length: int | None = Field(default=None, ge=1, description="a number of tokens", examples=[64])

    @model_validator(mode="after")
    def _check_token_source(self) -> "TextSettings":
        if (self.vocabulary is None) == (self.hashing is None):
            raise InvalidValue(
                self.model_dump(exclude_none=True),
                'either "vocabulary" or "hashing"',
                'for example {"hashing": 20000}',
            )
        return self


class Augmentation(Settings):
    """Random changes to training images, drawn for each image separately.

    Attributes:
        flip: Whether images are mirrored left to right with a probability of 50 %.
        crop: The largest shift of an image, in pixels; the gap is filled from the image's border.
        brightness: Images are multiplied by a factor from `1 - brightness` to `1 + brightness`.
    """

    flip: bool = False
    crop: int = Field(default=0, ge=0, description="a number of pixels", examples=[4])
    brightness: float = Field(default=0.0, ge=0, lt=1, description="a share below 1", examples=[0.2])


class DataSettings(Settings):
    """Settings for reading data, training and evaluation.

    Attributes:
        metric: The metric by which networks are compared; by default, the one that suits the labels.
        metrics: Output -> an additional metric to report for it; other outputs get the one that suits their
            labels.
        losses: Output -> its loss, from a plug-in or a file; other outputs get the one that suits their
            labels.
        validation: The validation set, on which every choice is based: a share of the training data, which is
            held out, or the name of a file.
        augment: Random changes to training images.
        scale: How the model expects raw data to be scaled.
        class_weights: The weight of each class in the loss: a list, or "balanced", which gives all classes
            the same total weight.
        text: How text is converted to token ids.
        labels: The names of classes by output, or a file with them; by default, those in the training data.
        tasks: A file with the space of the tasks that the data answer (`mistify.scenarios`).
        preparation: Input -> how an app prepares it.
        code: Filled in by the program from `FILE.py:NAME`; not for configs.
    """

    metric: Annotated[Metric, BeforeValidator(_metric), _IN_CODE] | None = Field(
        default=None, description=f"one of {', '.join(known_metrics())}", examples=[Metric.F1.value]
    )
    metrics: dict[str, OutputMetric] = Field(
        default_factory=dict, description="metrics by output", examples=[{"boxes": Metric.MAE.value}]
    )
    losses: dict[str, Annotated[LossName, _IN_CODE]] = Field(
        default_factory=dict,
        exclude_if=lambda losses: not losses,
        description="losses by output",
        examples=[{"boxes": "box_iou"}],
    )
    validation: Validation = Field(
        default=0.1, description="a share of the training data, or the name of a file", examples=[0.1]
    )
    augment: Augmentation | None = None
    scale: InputScaling | None = None
    class_weights: ClassWeights | None = Field(
        default=None, description='"balanced" or a list of numbers above 0', examples=["balanced"]
    )
    text: TextSettings | None = None
    labels: Labels | None = Field(
        default=None,
        exclude_if=lambda labels: labels is None,
        description="a list of names, the name of a file, or an object of these by output",
    )
    tasks: File | None = Field(
        default=None,
        exclude_if=lambda tasks: tasks is None,
        description="the name of a file with properties and tasks",
        examples=["tasks.json"],
    )
    preparation: dict[str, Preparation] = Field(
        default_factory=dict,
        exclude_if=lambda preparation: not preparation,
        description="an object by input",
        examples=[{"photo": {"image": {}}}],
    )
    code: dict[str, CodeFile] = Field(
        default_factory=dict, exclude_if=lambda code: not code, description="an object of files by name"
    )

    @model_validator(mode="before")
    @classmethod
    def _code_apart(cls, raw: Any) -> Any:
        return with_code_apart(cls, raw) if isinstance(raw, Mapping) else raw


class DatasetConfig(DataSettings):
    """The names of the data, which the server resolves below its data roots, and their settings.

    Attributes:
        unlabelled: Inputs without labels (any labels are ignored): the source's predictions serve as labels.
            Used instead of training data, or in addition.
        train: Training data.
        test: Test data; without test and training data, some of the unlabelled inputs.
    """

    unlabelled: DataName | None = Field(
        default=None,
        exclude_if=lambda name: name is None,
        description="the name of inputs without labels",
        examples=["photos.npz"],
    )
    train: DataName | None = Field(
        default=None,
        validate_default=True,
        description='the name of the training data, or of "unlabelled" inputs instead',
        examples=["cifar10/train.npz"],
    )
    test: DataName | None = Field(
        default=None,
        validate_default=True,
        description='the name of the test data, or "unlabelled" inputs alone',
        examples=["cifar10/test.npz"],
    )

    @field_validator("unlabelled")
    @classmethod
    def _not_generated(cls, unlabelled: str | None) -> str | None:
        if unlabelled is not None and unlabelled.startswith(GENERATED):
            raise InvalidValue(unlabelled, "inputs of your own", f'write "train": "{unlabelled}"')
        return unlabelled

    @field_validator("train", "test")
    @classmethod
    def _required_unless_unlabelled(cls, name: str | None, info: ValidationInfo) -> str | None:
        """Accept a missing part only if unlabelled inputs replace it."""
        unlabelled = info.data.get("unlabelled", "")  # "" if that setting is invalid itself
        if name is None and (unlabelled is None or info.data.get("train") is not None):
            raise PydanticCustomError("missing", "it is missing")
        if name is not None and unlabelled is not None and name.startswith(GENERATED):
            raise InvalidValue(name, 'no generated data in addition to "unlabelled" inputs', "leave it out")
        return name

    @model_validator(mode="after")
    def _check_validation_labels(self) -> "DatasetConfig":
        if self.test is None and isinstance(self.validation, str):
            raise InvalidValue(
                {"validation": self.validation},
                "a share of the unlabelled inputs if there are no test data",
                'leave it out, or name labelled data as "test" as well',
            )
        return self

    @property
    def has_validation_labels(self) -> bool:
        """True if the validation data have labels of their own, not predictions of the source."""
        return isinstance(self.validation, str) or not trains_on_pseudo_labels(self.train)

    @property
    def settings(self) -> DataSettings:
        """The settings without the names of the data."""
        return DataSettings(**{name: getattr(self, name) for name in DataSettings.model_fields})


def trains_on_pseudo_labels(train: str | None) -> bool:
    """Check whether training uses pseudo-labels: there are no training data, or they are generated.

    Raises:
        InvalidValue: See `generated_count`.
    """
    return train is None or bool(generated_count(train))


def generated_count(data: str) -> int:
    """Return the number of examples in `generated:COUNT`, 0 for other data.

    Raises:
        InvalidValue: COUNT is not a number from 1 to `MOST_GENERATED`.
    """
    if not data.startswith(GENERATED):
        return 0
    count = data.removeprefix(GENERATED)
    if not (count.isdecimal() and 0 < int(count) <= MOST_GENERATED):
        expected = f"{GENERATED}COUNT, at most {MOST_GENERATED:,}"
        raise InvalidValue(data, expected, "write how many examples to make")
    return int(count)
