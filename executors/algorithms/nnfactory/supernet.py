"""The supernet: a network with gates, the assembler that sets them, and the slices that they leave."""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from executors.algorithms.nnfactory.assembler import AssemblerShape, Worth, assembler
from executors.algorithms.nnfactory.gates import (
    GATES,
    SCALES,
    SHIFTS,
    GatedGroup,
    gate_inputs,
    gated,
    gated_groups,
)
from executors.algorithms.nnfactory.modulation import modulate
from executors.data import Array
from executors.structure import Structure, analyse, model_of, narrow, set_weights
from executors.training.evaluation import EVALUATION_BATCH, Tensors, call, examples_at_once, quick_call
from mistify.config.task import TaskConfig
from mistify.scenarios.classes import class_numbers
from mistify.scenarios.gates import open_units
from mistify.scenarios.quality import UNMEASURED, Quality
from mistify.scenarios.space import TaskSpace
from mistify.tflite.slicing import OpenUnits

#: The assembler's logits of gates.
LOGITS: Final = "logits"


@dataclass(frozen=True)
class Assembly:
    """The units of a slice.

    Attributes:
        open: Whether each unit is open, for every group [units], by the group's name.
        values: Gates, scales and shifts of all units by their kinds, group after group [all units].
    """

    open: Mapping[str, npt.NDArray[np.bool_]]
    values: Mapping[str, npt.NDArray[np.float32]]

    @property
    def widths(self) -> dict[str, int]:
        """The number of open units of each group."""
        return {name: int(kept.sum()) for name, kept in self.open.items()}


class Supernet:
    """A network with gates, and the assembler that sets them for a task and a limit.

    Attributes:
        groups: The groups whose units have gates, in order.
        gated: The network with gates (`executors.algorithms.nnfactory.gates.gated`).
        assembler: Returns logits, scales and shifts for `task` and `limit`
            (`executors.algorithms.nnfactory.assembler.assembler`).
        model: Both side by side: everything that is trained.
        space: The properties of the tasks that it can be asked for, and the trained tasks.
        classes: Names of a classifier's classes, in order, where tasks are some of them.
        quality: The scores on validation data by limit; empty before it is trained.
    """

    def __init__(
        self,
        source: Structure,
        shape: AssemblerShape,
        space: TaskSpace,
        quality: Quality = UNMEASURED,
        *,
        classes: tuple[str, ...] = (),
        worth: Worth | None = None,
    ) -> None:
        """Create a supernet with the weights of the source and a new assembler.

        Args:
            source: The network that gets gates.
            shape: The size of the assembler.
            space: The tasks that can be asked for.
            quality: The scores by limit.
            classes: Names of all classes, where tasks are some of them.
            worth: The worth of the source's units, by which the gates start; by default they are random.
        """
        self._source = source
        self._shape = shape
        self.space = space
        self.classes = classes
        self.quality = quality
        self.groups = gated_groups(source)
        self.gated = gated(source, self.groups, shape.modulate)
        self.assembler = assembler(shape, self.groups, worth)
        own = self.assembler(self.assembler.inputs)
        self.model = keras.Model(
            [*self.gated.inputs, *self.assembler.inputs],
            [*self.gated.outputs, *keras.tree.flatten(own)],
            name="supernet",
        )
        self._run = tf.function(self._outputs, input_signature=[self._signature()], autograph=False)

    @property
    def limits(self) -> tuple[float, ...]:
        """The limits whose quality was measured, ascending; none before it is trained."""
        return self.quality.limits

    @cached_property
    def network(self) -> keras.Model:
        """The network without gates, all units open, neither scaled nor shifted, with its trained weights."""
        network = model_of(self._source.graph)
        for layer in network.layers:
            set_weights(layer, self.gated.get_layer(layer.name).get_weights())
        return network

    @cached_property
    def structure(self) -> Structure:
        """The structure of the network without gates."""
        return analyse(self.network, self._source.rules)

    def encoded(self, task: TaskConfig) -> npt.NDArray[np.float32]:
        """Return the encoding of a task as written by a user [properties].

        Raises:
            MistifyError: INVALID_CONFIG: there is no such property.
            InvalidValue: There is no such class.
        """
        if task.properties:
            return self.space.encode(self.space.parse(task.properties))
        encoded = np.zeros(self.space.size, np.float32)
        encoded[list(class_numbers(task.classes, self.classes, self.space.size))] = 1
        return encoded

    def assemblies(self, task: npt.NDArray[np.float32], limits: Sequence[float]) -> list[Assembly]:
        """Return the units that the assembler opens for a task within each limit.

        Args:
            task: The encoded task [properties].
            limits: Largest shares of units that may be open.
        """
        tasks = np.tile(task, (len(limits), 1))
        requests = {"task": tasks, "limit": np.array(limits, np.float32)[:, None]}
        outputs = {name: np.asarray(value) for name, value in call(self.assembler, requests, False).items()}
        return [
            self._assembly(limit, {name: values[number] for name, values in outputs.items()})
            for number, limit in enumerate(limits)
        ]

    def slice(self, assembly: Assembly) -> keras.Model:
        """Return the network of the open units alone, with their scales and shifts in its weights."""
        network = narrow(self.structure, assembly.open)
        if self._shape.modulate:
            for group, kept, scale, shift in self._by_group(assembly):
                modulate(network, self.structure, group, scale[kept], shift[kept])
        return network

    def units(self, assembly: Assembly) -> tuple[OpenUnits, ...]:
        """Return the open units of each group, to cut the same slice out of the converted network."""
        if not self._shape.modulate:
            return tuple(OpenUnits(np.flatnonzero(kept)) for kept in assembly.open.values())
        return tuple(
            OpenUnits(np.flatnonzero(kept), scale[kept], shift[kept])
            for _, kept, scale, shift in self._by_group(assembly)
        )

    def outputs(self, inputs: Mapping[str, Array], assembly: Assembly) -> Array:
        """Return the output of the network with gates, whose closed units are masked [examples, ...]."""
        batches, signature = [], self._signature()
        at_once = examples_at_once(self.gated, EVALUATION_BATCH)
        for at in range(0, len(next(iter(inputs.values()))), at_once):
            batch = {name: array[at : at + at_once] for name, array in inputs.items()}
            size = len(next(iter(batch.values())))
            batch |= {kind: np.tile(of_all, (size, 1)) for kind, of_all in assembly.values.items()}
            batches.append(self._run({n: tf.cast(batch[n], spec.dtype) for n, spec in signature.items()}))
        return np.concatenate(batches)

    def saved(self) -> bytes:
        """Return the supernet as bytes."""
        about = {
            "shape": asdict(self._shape),
            "space": self.space.model_dump(mode="json", by_alias=True),
            "quality": self.quality.model_dump(mode="json"),
            "classes": self.classes,
        }
        file = io.BytesIO()
        np.savez(file, about=json.dumps(about), **weights_of(self.model))  # type: ignore[arg-type]
        return file.getvalue()

    @classmethod
    def loaded(cls, content: bytes, source: Structure) -> "Supernet":
        """Return a supernet that was saved.

        Args:
            content: The result of `saved`.
            source: The network that it was made of.
        """
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            quality = Quality.model_validate(about["quality"])
            space = TaskSpace.model_validate(about["space"])
            shape = AssemblerShape(**about["shape"])
            supernet = cls(source, shape, space, quality, classes=tuple(about["classes"]))
            restore(supernet.model, arrays)
        return supernet

    def _assembly(self, limit: float, outputs: Mapping[str, npt.NDArray[np.float32]]) -> Assembly:
        units = [group.units for group in self.groups]
        kept = open_units(outputs[LOGITS], limit, units, [group.least for group in self.groups])
        values = {name: value for name, value in outputs.items() if name != LOGITS}
        names = (group.name for group in self.groups)
        gates = np.concatenate(kept).astype(np.float32)
        return Assembly(dict(zip(names, kept, strict=True)), {GATES: gates, **values})

    def _by_group(
        self, assembly: Assembly
    ) -> list[tuple[GatedGroup, npt.NDArray[np.bool_], npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
        ends = np.cumsum([group.units for group in self.groups])[:-1]
        scales, shifts = (np.split(assembly.values[kind], ends) for kind in (SCALES, SHIFTS))
        return list(zip(self.groups, assembly.open.values(), scales, shifts, strict=True))

    def _outputs(self, batch: Tensors) -> tf.Tensor:
        values = {kind: batch[kind] for kind in self._kinds}
        inputs = {name: tensor for name, tensor in batch.items() if name not in values}
        outputs = quick_call(self.gated, {**inputs, **gate_inputs(self.groups, values)}, training=False)
        return next(iter(outputs.values()))

    @property
    def _kinds(self) -> tuple[str, ...]:
        return (GATES, SCALES, SHIFTS) if self._shape.modulate else (GATES,)

    def _signature(self) -> dict[str, tf.TensorSpec]:
        graph, units = self._source.graph, sum(group.units for group in self.groups)
        own = {
            name: tf.TensorSpec(graph.shapes[tensor], graph.dtypes[tensor])
            for tensor, name in graph.inputs.items()
        }
        return own | {kind: tf.TensorSpec([None, units], tf.float32) for kind in self._kinds}


def weights_of(model: keras.Model) -> dict[str, Array]:
    """Return the weights of a model by names that count them."""
    return {f"weight-{number}": weight.numpy() for number, weight in enumerate(model.weights)}


def restore(model: keras.Model, arrays: Mapping[str, Any]) -> None:
    """Give a model the weights of `weights_of`."""
    for number, weight in enumerate(model.weights):
        weight.assign(arrays[f"weight-{number}"])
