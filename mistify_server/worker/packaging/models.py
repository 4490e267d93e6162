"""Packaging of Keras models: compression, conversion and description according to a task (paper 7)."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final, TypeAlias

import keras
import numpy as np

from executors.compression import compressed, quantization_aware
from executors.contract.package_parts import Factory, PackageParts
from executors.data import Array, Dataset, HeldOut
from executors.inspection.errors import invalid
from executors.outputs.empty_classes import empty_classes, named
from executors.outputs.objectives import OutputObjective, objectives_of
from executors.sources.contract import Range
from executors.structure.exporting import folded
from executors.structure.signature import output_names, signature_of
from executors.training.evaluation import call, evaluate
from executors.training.setup import TrainingSetup
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.budget import meets
from mistify.costs.quantization import Quantization
from mistify.errors import ErrorCode, MistifyError
from mistify.package.source import SOURCE, SourceInterface
from mistify.parsing.quantities import format_bytes
from mistify.wording import listed
from mistify_server.tasks.tasks import PackageTask
from mistify_server.worker.description.description import description_of
from mistify_server.worker.packaging.adaptation.files import AdaptationFiles, adaptation_files
from mistify_server.worker.packaging.assemble import PackageFiles, assemble
from mistify_server.worker.packaging.conversion.activations import Calibration, calibration
from mistify_server.worker.packaging.conversion.blocks import block_store
from mistify_server.worker.packaging.conversion.branches import Branches, convert_branches
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.conversion.cuttable import FLOAT32, NotCuttableError
from mistify_server.worker.packaging.conversion.factory import factory_files
from mistify_server.worker.packaging.conversion.representative import Examples
from mistify_server.worker.packaging.conversion.result import Conversion, ConvertedNetworks
from mistify_server.worker.packaging.conversion.saved_model import SAVED_MODEL, zipped_saved_model
from mistify_server.worker.packaging.conversion.slice_source import SliceSource
from mistify_server.worker.packaging.conversion.trainable import convert_trainable, kind_of
from mistify_server.worker.packaging.exits.making import ExitFiles, ServedNetwork, exit_files
from mistify_server.worker.packaging.measurement.comparison import COMPARED_EXAMPLES, compare
from mistify_server.worker.packaging.measurement.file_costs import is_stored, stored_costs
from mistify_server.worker.packaging.measurement.rounding import with_rounding_losses
from mistify_server.worker.packaging.tflite.layer_names import float_kernels
from mistify_server.worker.packaging.tflite.runner import Arrays, Runner

#: Returns the network of a checkpoint at a precision without conversion; None if it needs the converter.
Ready: TypeAlias = Callable[[QuantizationConfig], bytes | None]

NO_PARTS: Final = PackageParts()
NO_RANGES: Final[Mapping[str, Range]] = {}
NO_SLICES: Final = SliceSource()


def needs_converter(_: QuantizationConfig) -> bytes | None:
    """Return None: there is no network without conversion."""
    return None


def package_model(
    model: keras.Model,
    task: PackageTask,
    setup: TrainingSetup,
    test: Dataset,
    *,
    training_steps: int = 0,
    branches: Branches | None = None,
    interface: SourceInterface | None = None,
    ranges: Mapping[str, Range] = NO_RANGES,
    parts: PackageParts = NO_PARTS,
    slices: SliceSource = NO_SLICES,
    written: Ready = needs_converter,
) -> PackageFiles:
    """Compress and convert a checkpoint, compare both, and measure and describe the result.

    A network that a template gives is used only if it computes the same as the checkpoint.

    Args:
        model: The checkpoint of the task.
        task: The package task, with the costs and accuracy of the checkpoint.
        setup: The data and settings for training and validation of the checkpoint.
        test: The test data for measuring the finished package.
        training_steps: Number of steps of quantization-aware training and compression, if requested.
        branches: The networks of the task's branches; None if it has none.
        interface: The inputs and outputs of the source's file, if they differ from the network's.
        ranges: Layer -> the range of its output's integers, if the checkpoint was quantized before.
        parts: Additional parts from the algorithm.
        slices: The network that the checkpoint is a slice of, if it is one.
        written: Returns the network of the checkpoint from a template.

    Raises:
        MistifyError: CORRUPT_PACKAGE, the package's outputs differ from the checkpoint's; INVALID_MODEL,
            LiteRT lacks an operation, or the activations for calibration are not finite.
    """
    model, accuracy = _compressed(model, task, setup, training_steps)
    package = partial(
        _package,
        model,
        accuracy,
        task,
        setup,
        test,
        training_steps=training_steps,
        branches=branches,
        interface=interface,
        ranges=ranges,
        parts=parts,
        slices=slices,
    )
    if not _is_plain(task):
        return package(ready=needs_converter)
    if slices.units is None and _are_written(ready := cache(written), task):
        try:
            _check(model, task, setup, ready)
            return package(ready=ready)
        except MistifyError as error:
            if error.code not in (ErrorCode.CORRUPT_PACKAGE, ErrorCode.INVALID_MODEL):
                raise
    return package(ready=slices.cut)


def _package(
    model: keras.Model,
    accuracy: float,
    task: PackageTask,
    setup: TrainingSetup,
    test: Dataset,
    *,
    ready: Ready,
    training_steps: int,
    branches: Branches | None,
    interface: SourceInterface | None,
    ranges: Mapping[str, Range],
    parts: PackageParts,
    slices: SliceSource,
) -> PackageFiles:
    """Package a checkpoint after compression.

    Args:
        accuracy: Share of correct answers, or another metric, on the validation data.
        ready: Returns its network at a precision without conversion.
    """
    objectives = objectives_of(model, setup.train)
    networks = [branch.model for branch in branches.networks] if branches else [model]
    serve = ready(task.spec.quantization)
    sample = Calibration({}) if serve else _calibration(networks, task, setup)
    ranges = ranges if _is_plain(task) and task.spec.quantization.precision is Quantization.INT8 else {}
    convert_whole = partial(
        _convert, model, task, setup, training_steps=training_steps, branches=branches, ranges=ranges
    )
    converted = ConvertedNetworks(serve) if serve else convert_whole(sample.examples)
    adaptation = _adaptation(networks, converted.serve, task, objectives, setup)
    served = ServedNetwork(model, converted.serve, objectives, sample.examples, branches)
    exits = exit_files(served, task.spec.exits, task, setup, test) if task.spec.exits else ExitFiles({}, "")
    files_of_parts = _files_of(parts, slices, task, sample.examples, objectives)
    measured_files = with_rounding_losses(files_of_parts, setup.validation, objectives, task.recipe.data)
    further_files = {**measured_files, **adaptation.files, **exits.files}
    on_classes = _note_on_classes(model, setup.train)
    on_floats = _note_on_floats(converted.serve, model, task)
    on_ranges = "integers have the ranges of the source's own quantization" if ranges else ""
    remarks = (on_classes, sample.note, on_ranges, on_floats, adaptation.note, exits.note)
    conversion = Conversion(
        networks=converted,
        inputs=[tensor.name for tensor in model.inputs],
        outputs=output_names(model),
        originals=[partial(_run, network) for network in networks],
        float32=partial(_in_float32, model, ready),
        accuracy=accuracy,
        note="; ".join(filter(None, remarks)),
        description=description_of(setup.settings, signature_of(model), objectives, setup.train),
        branches=branches,
        layers=[layer.name for layer in model.layers],
        other_files={**_saved_model(branches, task), **_source_interface(interface), **further_files},
    )
    return assemble(conversion, task, objectives, HeldOut(setup.validation, test))


def _source_interface(interface: SourceInterface | None) -> dict[str, bytes]:
    return {} if interface is None else {SOURCE: interface.model_dump_json(indent=2).encode()}


def _compressed(
    model: keras.Model, task: PackageTask, setup: TrainingSetup, training_steps: int
) -> tuple[keras.Model, float]:
    """Return the checkpoint and its accuracy, after compression if it is requested."""
    if task.spec.compression is None:
        return model, task.accuracy
    model = compressed(model, task.spec.compression, setup, training_steps, task.recipe.seed)
    return model, evaluate(model, setup.validation, task.recipe.data.metric)


def _calibration(networks: Sequence[keras.Model], task: PackageTask, setup: TrainingSetup) -> Calibration:
    """Return the examples for calibrating the networks of an integer package; none for others."""
    if not task.spec.quantization.precision.integer:
        return Calibration({})
    return calibration(map(folded, networks), setup.train)


def _convert(
    model: keras.Model,
    task: PackageTask,
    setup: TrainingSetup,
    examples: Examples,
    *,
    training_steps: int,
    branches: Branches | None,
    ranges: Mapping[str, Range],
) -> ConvertedNetworks:
    spec, quantization = task.spec, task.spec.quantization
    if branches:
        return ConvertedNetworks(convert_branches(branches, quantization, examples))
    match quantization.precision:
        case Quantization.NONE if spec.compression is None and spec.tuning.trainable != "none":
            return _convert_trainable(model, task, setup)
        case Quantization.INT8:
            return ConvertedNetworks(convert(model, quantization, examples, ranges))
        case Quantization.INT8_QAT:
            aware = quantization_aware(model, setup, training_steps, task.recipe.seed)
            return ConvertedNetworks(
                convert(aware, quantization, calibration([folded(aware)], setup.train).examples)
            )
        case _:
            return ConvertedNetworks(convert(model, quantization))


def _adaptation(
    networks: Sequence[keras.Model],
    serve: bytes,
    task: PackageTask,
    objectives: Mapping[str, OutputObjective],
    setup: TrainingSetup,
) -> AdaptationFiles:
    """Return the description of folded batch norms, if the package is to have one."""
    if not task.spec.tuning.adaptation:
        return AdaptationFiles({})
    return adaptation_files(networks, serve, objectives, [setup.validation, setup.train])


def _saved_model(branches: Branches | None, task: PackageTask) -> dict[str, bytes]:
    """Return the branches as a SavedModel, if the package is to have one."""
    return {SAVED_MODEL: zipped_saved_model(branches)} if branches and task.spec.saved_model else {}


def _files_of(
    parts: PackageParts,
    slices: SliceSource,
    task: PackageTask,
    examples: Examples,
    objectives: Mapping[str, OutputObjective],
) -> dict[str, bytes]:
    """Return the files of the parts from the algorithm."""
    return {
        **(_block_store(parts, task, examples, objectives) if parts.blocks else {}),
        **(_factory(parts.factory, slices, task, objectives) if parts.factory else {}),
    }


def _block_store(
    parts: PackageParts, task: PackageTask, examples: Examples, objectives: Mapping[str, OutputObjective]
) -> dict[str, bytes]:
    """Return the block store of a package, without quantization-aware training."""
    precision = task.spec.quantization.precision.stored_as
    kinds = {name: kind_of(objective) for name, objective in objectives.items()}
    return block_store(parts.blocks, precision, examples, kinds, served=parts.served, front=parts.front)


def _factory(
    factory: Factory, slices: SliceSource, task: PackageTask, objectives: Mapping[str, OutputObjective]
) -> dict[str, bytes]:
    """Return the factory of a package, without quantization-aware training.

    Raises:
        MistifyError: INVALID_MODEL, slices cannot be cut out of it.
    """
    kinds = {name: kind_of(objective) for name, objective in objectives.items()}
    try:
        network = slices.network(task.spec.quantization)
    except NotCuttableError as error:
        expected = "units that LiteRT's converter keeps apart, so that devices can cut them out"
        raise invalid("the model", str(error), expected, 'leave "inside" out') from error
    return factory_files(factory, network, slices.assembler(factory.assembler), kinds)


def _is_plain(task: PackageTask) -> bool:
    """Check whether a package has the network of its checkpoint, and no other forms of it."""
    spec = task.spec
    trained = spec.compression is not None or spec.quantization.precision is Quantization.INT8_QAT
    tuned = spec.tuning.trainable != "none" or spec.tuning.adaptation
    return not (trained or tuned or task.branches)


def _in_float32(model: keras.Model, ready: Ready) -> bytes:
    return ready(FLOAT32) or convert(model)


def _are_written(ready: Ready, task: PackageTask) -> bool:
    """Check whether there are networks at the precision of a package, within its limits, and in float32."""
    network, float32 = (ready(quantization) for quantization in (task.spec.quantization, FLOAT32))
    return float32 is not None and network is not None and _is_small_enough(network, task)


def _is_small_enough(network: bytes, task: PackageTask) -> bool:
    """Check whether a written network keeps to limits on costs of its file.

    In the converter's file, equal constants are one, so that it may be a little smaller.
    """
    spec = task.spec
    limits = {axis: limit for axis, limit in spec.budget.items() if is_stored(axis)}
    return not limits or meets(stored_costs(network, spec.quantization, spec.threads), limits)


def _check(model: keras.Model, task: PackageTask, setup: TrainingSetup, ready: Ready) -> None:
    """Check that a network from a template computes the same as the checkpoint.

    In float32, the package itself is compared later. At other precisions outputs differ, so that its form in
    float32 is compared, into which the same weights are written.

    Raises:
        MistifyError: CORRUPT_PACKAGE, it does not; INVALID_MODEL, LiteRT cannot run it.
    """
    if task.spec.quantization.precision is not Quantization.NONE:
        compare(partial(_run, model), Runner(_in_float32(model, ready)), setup.validation, Quantization.NONE)


def _convert_trainable(model: keras.Model, task: PackageTask, setup: TrainingSetup) -> ConvertedNetworks:
    objectives = objectives_of(model, setup.train, setup.settings)
    rows = np.arange(min(COMPARED_EXAMPLES, len(setup.validation)))
    return convert_trainable(model, objectives, task.spec.tuning, setup.validation.subset(rows).inputs)


def _note_on_classes(model: keras.Model, train: Dataset) -> str:
    """Return a remark on classes without training examples; may be empty."""
    empty = empty_classes(signature_of(model), train)
    return f"no training example of {named(empty)}: it may have been forgotten" if empty else ""


def _note_on_floats(network: bytes, model: keras.Model, task: PackageTask) -> str:
    """Return a remark on float32 kernels in an integer package; may be empty."""
    precision = task.spec.quantization.precision
    kept = float_kernels(network, {layer.name for layer in model.layers}) if precision.integer else {}
    if not kept:
        return ""
    named_kernels = listed([f"{layer} ({format_bytes(size, 3)})" for layer, size in kept.items()])
    return f"as {precision.value}: kernels stay in float32 in {named_kernels}"


def _run(model: keras.Model, inputs: Arrays) -> dict[str, Array]:
    return {name: np.asarray(output) for name, output in call(model, inputs, training=False).items()}
