"""The manifest of a package: `manifest.json` next to the network (paper 4.3, 7)."""

from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import (
    AfterValidator,
    AwareDatetime,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.preparation import Preparation
from mistify.config.data.targets import OVERALL, Target
from mistify.config.package.compression import CompressionConfig
from mistify.config.task import TaskConfig
from mistify.costs.quantization import Quantization
from mistify.machine import MOST_THREADS
from mistify.package.records import (
    FileName,
    PackagedFile,
    Record,
    Sha256,
    parse_record,
)
from mistify.package.signature import SIGNATURE_FILE, read_signed
from mistify.package.training import Training
from mistify.parsing.validation import InvalidValue

FORMAT_VERSION: Final = 5
MANIFEST = "manifest.json"

#: The network of a package, for inference.
NETWORK: Final = "serve.tflite"

#: The network's signature for any batch size.
SIGNATURE: Final = "serving_default"

#: The input of a multi-branch network that selects the branch: int32, a scalar.
BRANCH_INPUT: Final = "branch"

#: Suffix of signatures with fixed shapes.
FIXED_BATCH: Final = "_batch_1"


def branch_signature(branch: int) -> str:
    """Return the signature of a multi-branch network for one branch, without `BRANCH_INPUT`."""
    return f"branch_{branch}"


def fixed_batch_signature(signature: str) -> str:
    """Return the variant of a signature that runs one example at a time, with fixed shapes."""
    return f"{signature}{FIXED_BATCH}"


#: Fields that earlier formats do not have.
_SINCE_FORMAT_3: Final = ("labels", "preparation")
_SINCE_FORMAT_4: Final = "task"

Figure = Annotated[float, Field(ge=0)]


@cache
def _number_type(name: str) -> str:
    with suppress(TypeError, ValueError):
        if np.dtype(name).name == name and np.dtype(name).kind in "biufc":
            return name
    raise InvalidValue(name, 'a numeric NumPy type such as "float32"', "fetch the package again")


class TensorInfo(Record):
    """An input or output of the network; -1 in the shape is the batch dimension.

    Integers q of a quantized tensor represent the values `scale * (q - zero_point)`; both are None for other
    tensors. The network has channels last; with `channels_first`, apps may also pass arrays in which the
    channels follow the batch, as in the file of the source.
    """

    name: str
    dtype: Annotated[str, AfterValidator(_number_type)]
    shape: tuple[int, ...]
    scale: Annotated[float, Field(gt=0)] | None = None
    zero_point: int | None = None
    channels_first: bool = Field(default=False, exclude_if=lambda first: not first)

    @property
    def source_shape(self) -> tuple[int, ...] | None:
        """The shape with channels first; None if apps may not pass such arrays."""
        return (self.shape[0], self.shape[-1], *self.shape[1:-1]) if self.channels_first else None

    @property
    def example_shape(self) -> tuple[int, ...]:
        """The shape for one example; other free sizes count as 1."""
        return tuple(max(1, size) for size in self.shape)

    @property
    def example_bytes(self) -> int:
        """The size of the tensor for one example, in bytes."""
        return prod(self.example_shape) * np.dtype(self.dtype).itemsize

    def quantized(self, values: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return values as stored in the tensor.

        Args:
            values: Floats of any shape.

        Returns:
            The nearest integers that represent them; for a tensor that is not quantized, the values in its
            dtype.
        """
        if self.scale is None or self.zero_point is None:
            return np.asarray(values, self.dtype)
        limits = np.iinfo(self.dtype)
        nearest = np.round(np.asarray(values, np.float32) / np.float32(self.scale)) + self.zero_point
        quantized: npt.NDArray[Any] = np.clip(nearest, limits.min, limits.max).astype(self.dtype)
        return quantized

    def dequantized(self, stored: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the values that the content represents; unchanged if the tensor is not quantized."""
        if self.scale is None or self.zero_point is None:
            return stored
        return (stored.astype(np.float32) - self.zero_point) * np.float32(self.scale)


class TunableTensor(Record):
    """A weight that a device can tune: its shape, and the L2 norm of its values as packaged."""

    shape: tuple[int, ...]
    norm: Figure


class MeasuredLatency(Record):
    """The latency of an inference at batch 1 in LiteRT, and the conditions of the measurement."""

    median_ms: Annotated[float, Field(gt=0)]
    p95_ms: Annotated[float, Field(gt=0)]
    runs: Annotated[int, Field(gt=0)]
    threads: Annotated[int, Field(gt=0, le=MOST_THREADS)]
    machine: str
    runtime: str


class Branch(Record):
    """One of the networks of a multi-branch package (paper 6), with its own costs and accuracy.

    Attributes:
        share: Its budget, as a multiple of the goal's.
        achieved: Axis -> cost of the shared base and this branch, by the cost model.
        measured: Axis -> latency of the package while it runs this branch, as in `Manifest`.
        accuracy: On the test data, measured in LiteRT.
        validation_accuracy: On the validation data, measured in LiteRT; the basis for choosing branches.
        latency: Latency of the package while it runs this branch.
    """

    share: Annotated[float, Field(gt=0)]
    achieved: dict[str, float]
    measured: dict[str, float] = Field(default_factory=dict)
    accuracy: Figure
    validation_accuracy: Figure
    latency: MeasuredLatency


class Versions(Record):
    """The software that made the package."""

    mistify: str
    tensorflow: str
    keras: str


class Manifest(Record):
    """A package: its goal, its costs and accuracy, its inputs and outputs, its files.

    Attributes:
        format_version: `FORMAT_VERSION` is the newest one that can be read. A file has the oldest format that
            can hold its content, so that older clients can read it, too.
        job: The job's id.
        goal: The goal's id.
        budget: Axis (`mistify.costs.budget`) -> limit.
        metric: The metric of `accuracy`.
        targets: Accuracies that the package had to reach on the test data.
        achieved: Axis -> cost by the cost model, with latencies predicted for each hardware profile; and the
            measured result of compression (`mistify.config.package.compression`).
        measured: Axis -> latency measured in LiteRT on the host. Nothing is measured on other hardware.
        accuracy: The accuracy of the package on the test data, measured in LiteRT.
        accuracy_examples: Number of test examples behind `accuracy`.
        validation_accuracy: On the validation data; the basis for choosing the package.
        output_scores: Output -> score on the test data, by a metric of that output.
        validation_output_scores: Output -> score on the validation data.
        latency: Latency on the host, with the conditions of the measurement.
        inputs: The network's inputs in order, without `BRANCH_INPUT`.
        outputs: The network's outputs in order.
        labels: Output -> names of its classes in order; for an output with one value, the names of no and
            yes. Outputs without class names are omitted.
        preparation: Input -> how an app prepares it; a vocabulary is one of the `files`. Inputs without a
            declared preparation are omitted.
        quantization: The precision; "none" is float32.
        branches: The branches, the cheapest first; empty for a single network. A network with branches has an
            additional input, `BRANCH_INPUT`, the number of the branch to run; and a signature for each
            branch, `branch_signature`, that runs it without that input, and faster. Each signature for any
            batch size may have a variant for batch 1, `fixed_batch_signature`.
        default_branch: Number of the branch that is the goal's own network, which all figures above describe.
        compression: The requested compression; None for no compression.
        task: The task that the package serves, with properties or classes; None for everything that its
            source does.
        note: The basis on which limits for other hardware than the host were judged; precisions that gained
            nothing over the float32 package of the same checkpoint; accuracy lost to compression.
        tunable: Name -> weight that a device can tune and share with its peers; empty if there are none.
        training: The content of `train.tflite`; None if the package has no such file.
        training_note: Why there is no `train.tflite`, or why it trains less than requested.
        tuned_from: SHA-256 of the originally packaged `serve.tflite` if a device has tuned it since; else
            None. In a tuned package, `accuracy` and `accuracy_examples` refer to the device's own data if the
            `metric` is accuracy, and to the original package otherwise.
        versions: Versions of the software that made the package.
        files: Name -> size and digest of every file except this one.
        created: Time of creation, with its time zone.
    """

    format_version: Literal[5] = FORMAT_VERSION
    job: str
    goal: str
    budget: dict[str, float]
    metric: Metric = Metric.ACCURACY
    targets: tuple[Target, ...] = ()
    achieved: dict[str, float]
    measured: dict[str, float] = Field(default_factory=dict)
    accuracy: Figure
    accuracy_examples: Annotated[int, Field(ge=0)] = 0
    validation_accuracy: Figure
    output_scores: tuple[OutputScore, ...] = ()
    validation_output_scores: tuple[OutputScore, ...] = ()
    latency: MeasuredLatency
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    labels: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    preparation: dict[str, Preparation] = Field(default_factory=dict)
    quantization: Quantization = Quantization.NONE
    branches: tuple[Branch, ...] = ()
    default_branch: Annotated[int, Field(ge=0)] = 0
    compression: CompressionConfig | None = None
    task: TaskConfig | None = None
    note: str = ""
    tunable: dict[str, TunableTensor] = Field(default_factory=dict)
    training: Training | None = None
    training_note: str = ""
    tuned_from: Sha256 | None = None
    versions: Versions
    files: dict[FileName, PackagedFile]
    created: AwareDatetime

    @model_validator(mode="before")
    @classmethod
    def _of_any_format(cls, content: Any) -> Any:
        return _upgraded(content)

    @model_serializer(mode="wrap")
    def _in_the_oldest_format(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = serialize(self)
        if any(info.channels_first for info in self.inputs):
            return content
        if self.task is not None:
            return content | {"format_version": 4}
        del content[_SINCE_FORMAT_4]
        if self.labels or self.preparation:
            return content | {"format_version": 3}
        without = {key: value for key, value in content.items() if key not in _SINCE_FORMAT_3}
        return without | {"format_version": 2}

    @model_validator(mode="after")
    def _check_accuracies(self) -> "Manifest":
        figures = ((self.metric, self.accuracy), *((target.metric, target.value) for target in self.targets))
        for metric, figure in figures:
            if metric.is_share and figure > 1:
                raise ValueError(f"{metric} above 1")
        return self

    @model_validator(mode="after")
    def _check_default_branch(self) -> "Manifest":
        if self.default_branch and self.default_branch >= len(self.branches):
            raise ValueError(f"no branch {self.default_branch}; there are {len(self.branches)}")
        return self

    @classmethod
    def load(cls, directory: Path) -> "Manifest":
        """Read the manifest of a package, but none of its other files.

        Raises:
            MistifyError: NOT_FOUND, there is no package; STORE_VERSION, a newer version of Mistify wrote it;
                CORRUPT_PACKAGE, with every problem in its manifest or its signature, or the manifest is not
                the signed one.
        """
        content, _ = read_signed(directory, MANIFEST)
        return parse_record(directory / MANIFEST, content, cls, FORMAT_VERSION)

    def save(self, directory: Path) -> Path:
        """Write `manifest.json` into a directory and return its path; the package is not signed any more."""
        path = directory / MANIFEST
        (directory / SIGNATURE_FILE).unlink(missing_ok=True)
        path.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return path


def _upgraded(content: Any) -> Any:
    """Return the content of a manifest in the newest format.

    In format 4, no input takes channels first. Format 3 has no task. Format 2 has neither names of classes
    nor preparations. Format 1 has accuracies on the test data only, which were also the basis for choosing
    between branches, and a single target.
    """
    if isinstance(content, dict) and content.get("format_version") in (2, 3, 4):
        return {**content, "format_version": FORMAT_VERSION}
    if not isinstance(content, dict) or content.get("format_version") != 1:
        return content
    branches, target = content.get("branches", []), content.get("accuracy_target")
    targets = [{"output": OVERALL, "metric": content.get("metric", Metric.ACCURACY), "value": target}]
    return {
        **{key: value for key, value in _with_validation(content).items() if key != "accuracy_target"},
        "targets": [] if target is None else targets,
        "format_version": FORMAT_VERSION,
        **({"branches": list(map(_with_validation, branches))} if isinstance(branches, list) else {}),
    }


def _with_validation(part: Any) -> Any:
    has = isinstance(part, dict) and "accuracy" in part
    return {**part, "validation_accuracy": part["accuracy"]} if has else part
