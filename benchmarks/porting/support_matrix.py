"""Architectures that can be adapted and packaged: `python -m benchmarks.porting.support_matrix`.

Every architecture of `keras.applications` (random weights, the smallest allowed input, ten classes) is
checked, BERT encoders of KerasHub with heads for classification and for span prediction, and a network for
videos with an image network for each frame, a recurrent layer and attention:

- The channel groups are found, and the multiply-adds with one unit in each group are computed.
- Every other residual block is removed. The outputs are compared with those of the whole network with the
  outputs of
  these blocks ignored.
- The network is narrowed to about half its multiply-adds, by the same share in every group. The outputs are
  compared
  with those of the whole network with the cut units masked.
- The narrowed network is packaged, and the outputs in LiteRT are compared with those in Keras.

`--write FILE` writes the table in Markdown; `--quick` only checks the fast architectures.
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track

from benchmarks.harness.run import Figures, Target, run
from executors.structure import (
    Keep,
    ResidualBlock,
    Role,
    Structure,
    analyse,
    narrow,
    remove_blocks,
    residual_blocks,
)
from executors.structure.graph import Graph
from executors.structure.signature import output_names
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.tflite.runner import run_network

TARGETS: Final[dict[str, Target]] = {"unsupported": {"what": "architectures that cannot be ported", "max": 0}}

#: Maximum differences between outputs, relative to the largest value.
CHANGED_TOLERANCE: Final = 1e-4
PACKAGED_TOLERANCE: Final = 1e-3

_HALF: Final = 0.5
_CLASSES: Final = 10
_EXAMPLES: Final = 2
_STEPS: Final = 16
_FRAMES: Final = 8
_TOKENS: Final = 100

#: Minimum input sizes of the architectures that do not accept 32 x 32 pixels.
_LEAST_PIXELS: Final = {"InceptionResNetV2": 75, "InceptionV3": 75, "Xception": 71}

_FAST: Final = ("ConvNeXtTiny", "MobileNetV2", "MobileNetV3Small", "BERT classifier", "BERT span")

Array = npt.NDArray[np.float32]
layers = keras.layers


@dataclass(frozen=True)
class Support:
    """Results for one architecture; costs are multiply-adds at batch size 1.

    Attributes:
        blocks: Number of removable residual blocks.
        shallow: Difference between the network without every other block and the whole network with these
            ignored, relative to the largest output; 0 without blocks.
        narrowed: Difference between the narrowed network and the masked one, relative to the largest output.
        packaged: Difference between LiteRT and Keras, relative to the largest output.
        reason: Reason why it is not supported; empty if it is.
    """

    name: str
    input_shape: str
    params: int = 0
    flops: int = 0
    groups: int = 0
    least: int = 0
    blocks: int = 0
    shallow: float = float("nan")
    narrowed: float = float("nan")
    packaged: float = float("nan")
    reason: str = ""

    @property
    def supported(self) -> bool:
        """Return whether the architecture can be adapted and packaged."""
        changed = max(self.narrowed, self.shallow) <= CHANGED_TOLERANCE
        return changed and self.packaged <= PACKAGED_TOLERANCE


def architectures() -> dict[str, Callable[[], keras.Model]]:
    """Return a builder of each architecture, by name."""
    applications = keras.applications
    names = [name for name in dir(applications) if name[0].isupper()]
    return {name: lambda name=name: _application(name) for name in names} | {
        "BERT classifier": lambda: _bert(_classified),
        "BERT span": lambda: _bert(_spanned),
        "Video classifier": _video_classifier,
    }


def measure(options: Namespace) -> Figures:
    """Check each architecture in a separate process, and print the table."""
    names = options.names or (_FAST if options.quick else architectures())
    context = get_context("spawn")
    rows = []
    for name in track(names, console=Console(stderr=True)):
        with ProcessPoolExecutor(1, mp_context=context) as process:
            rows.append(process.submit(look_at, name).result())
    table = markdown(rows)
    print(table)
    if options.write:
        options.write.write_text(_PREFACE + table)
    supported = sum(support.supported for support in rows)
    return {"supported": supported, "unsupported": len(rows) - supported}


def look_at(name: str) -> Support:
    """Return the results for an architecture."""
    keras.utils.set_random_seed(0)
    model = architectures()[name]()
    shape = " x ".join(str(size) for size in model.inputs[0].shape[1:])
    try:
        structure = analyse(model)
    except TypeError as error:
        return Support(name, shape, model.count_params(), reason=str(error))
    randomise(structure.graph)
    blocks = residual_blocks(structure.graph)
    keep = half(structure)
    small = narrow(structure, keep)
    inputs = random_inputs(small)
    narrow_outputs = _call(small, inputs)
    # Done first, without other networks in memory: converting a large one takes many times its size.
    packaged = _difference(narrow_outputs, _packaged(small, inputs))
    return Support(
        name,
        shape,
        model.count_params(),
        structure.network().flops,
        len(structure.groups),
        structure.network(dict.fromkeys(structure.groups, 1)).flops,
        len(blocks),
        _shallow(structure, blocks[::2], random_inputs(model)) if blocks else 0.0,
        _difference(_call(masked(structure, keep), inputs), narrow_outputs),
        packaged,
    )


def half(structure: Structure) -> Keep:
    """Return the units to keep for about half of the multiply-adds: an equal random share of every group."""
    whole = structure.network().flops
    shares = np.linspace(1, 0, 41)[:-1]
    for share in shares:
        widths = {name: max(1, round(size * share)) for name, size in structure.widths.items()}
        if structure.network(widths).flops <= _HALF * whole:
            break
    rng = np.random.default_rng(0)
    return {
        name: np.isin(np.arange(size), rng.choice(size, widths[name], replace=False))
        for name, size in structure.widths.items()
    }


def masked(structure: Structure, keep: Keep) -> keras.Model:
    """Return the whole network with the cut units masked wherever an operation sums over channels.

    Layer norms exclude them from their statistics.
    """
    weights = structure.graph.weights
    normalised: dict[str, npt.NDArray[np.bool_]] = {}
    for name, group in structure.groups.items():
        for slot in group.slots:
            cut = slot.positions[~keep[name]].ravel()
            layer = structure.graph.layers[slot.layer]
            if slot.role is Role.SUMS:
                array = np.moveaxis(weights[slot.layer][slot.weight], slot.axis, 0)
                array[cut] = 0
            elif type(layer) is layers.LayerNormalization:
                size = layer.weights[slot.weight].shape[0]
                normalised.setdefault(slot.layer, np.ones(size, bool))[cut] = False

    def make(name: str, layer: keras.layers.Layer) -> keras.layers.Layer:
        config = {**layer.get_config(), "name": name}
        if name in normalised:
            return MaskedNormalization(normalised[name].tolist(), **config)
        return type(layer).from_config(config)

    return structure.graph.build(make, weights)


def _shallow(
    structure: Structure, blocks: Sequence[ResidualBlock], inputs: dict[str, npt.NDArray[Any]]
) -> float:
    """Return the difference between a network without blocks and one that ignores their outputs."""
    graph = structure.graph
    skips = {
        node.name: node.inputs.index(block.skip)
        for block in blocks
        for node in graph.nodes
        if node.output == block.output
    }

    def make(name: str, layer: keras.layers.Layer) -> keras.layers.Layer:
        if name in skips:
            return GoesRound(skips[name], name=name)
        return type(layer).from_config({**layer.get_config(), "name": name})

    expected = _call(graph.build(make, graph.weights), inputs)
    return _difference(expected, _call(narrow(remove_blocks(structure, blocks), {}), inputs))


class GoesRound(keras.layers.Add):  # type: ignore[misc]
    """A sum that only returns one of its terms."""

    def __init__(self, term: int, **config: Any) -> None:
        super().__init__(**config)
        self._term = term

    def call(self, inputs: Any) -> Any:
        """Return the term."""
        return inputs[self._term]


class MaskedNormalization(keras.layers.LayerNormalization):  # type: ignore[misc]
    """A layer norm over the kept channels."""

    def __init__(self, kept: list[bool], **config: Any) -> None:
        super().__init__(**config)
        self._kept = np.asarray(kept, np.float32)

    def call(self, inputs: Any) -> Any:
        """Return the inputs, normalised with the statistics of the kept channels."""
        ops = keras.ops
        count = self._kept.sum()
        mean = ops.sum(inputs * self._kept, -1, keepdims=True) / count
        spread = ops.sum(ops.square(inputs - mean) * self._kept, -1, keepdims=True) / count
        return (inputs - mean) * ops.rsqrt(spread + self.epsilon) * self.gamma + self.beta


def markdown(supports: Iterable[Support]) -> str:
    """Return the table, with one row per architecture."""
    rows = [
        "| architecture | input | parameters | multiply-adds | groups | least | blocks | shallow | narrowed "
        "| packaged | |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for row in supports:
        verdict = "adapted and packaged" if row.supported else row.reason or "differs"
        least = f"{row.least / row.flops:.1%}" if row.flops else ""
        rows.append(
            f"| {row.name} | {row.input_shape} | {row.params / 1e6:.2f} M | {row.flops / 1e6:.1f} M "
            f"| {row.groups} | {least} | {row.blocks} | {row.shallow:.0e} | {row.narrowed:.0e} "
            f"| {row.packaged:.0e} | {verdict} |"
        )
    return "\n".join(rows) + "\n"


_PREFACE: Final = """# Support matrix

Written by `make support-matrix`; not edited by hand. Every architecture of `keras.applications` with its
smallest allowed input, BERT encoders, and a classifier of videos (MobileNetV2 per frame, GRU, attention),
all with random weights. *Least*: share of the multiply-adds that remains with one
unit in each channel group. *Blocks*: number of removable residual blocks. *Shallow*: difference between
the network without every other block and the whole network with these ignored, relative to the largest
output (at most 1e-4). *Narrowed*: difference between the network cut to half its
multiply-adds and the whole network with the cut units masked, relative to the largest output (at most
1e-4). *Packaged*: difference between LiteRT and Keras for the narrowed network (at most 1e-3).

"""


def _application(name: str) -> keras.Model:
    pixels = _LEAST_PIXELS.get(name, 32)
    return getattr(keras.applications, name)(
        weights=None, input_shape=(pixels, pixels, 3), classes=_CLASSES, classifier_activation=None
    )


def _bert(head: Callable[[Any], list[Any]]) -> keras.Model:
    import keras_hub  # noqa: PLC0415 (takes seconds, only needed here)

    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=_TOKENS,
        num_layers=2,
        num_heads=4,
        hidden_dim=64,
        intermediate_dim=128,
        max_sequence_length=_STEPS,
    )
    inputs = {
        name: keras.Input((_STEPS,), dtype="int32", name=name)
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    return keras.Model(inputs, head(backbone(inputs)))


def _classified(encoded: Any) -> list[Any]:
    return [layers.Dense(_CLASSES, name="class")(encoded["pooled_output"])]


def _spanned(encoded: Any) -> list[Any]:
    logits = layers.Dense(2, name="logits")(encoded["sequence_output"])
    return [layers.Softmax(name="start")(logits[:, :, 0]), layers.Softmax(name="end")(logits[:, :, 1])]


def _video_classifier() -> keras.Model:
    """Return a MobileNetV2 for each of eight frames, a recurrent layer, attention and a product."""
    network = keras.applications.MobileNetV2(
        weights=None, input_shape=(32, 32, 3), include_top=False, pooling="avg"
    )
    frames = keras.Input((_FRAMES, 32, 32, 3), name="frames")
    x = layers.GRU(64, return_sequences=True)(layers.TimeDistributed(network)(frames))
    x = layers.AdditiveAttention()([x, x])
    x = layers.EinsumDense("abc,cd->abd", (None, 32), activation="relu", bias_axes="d")(x)
    return keras.Model(frames, layers.Dense(_CLASSES, name="class")(layers.GlobalAveragePooling1D()(x)))


def randomise(graph: Graph) -> None:
    """Set random scales, offsets and statistics in place of the initial ones and zeros."""
    rng = np.random.default_rng(0)
    for weights in graph.variables.values():
        for weight in weights:
            kind = weight.path.rpartition("/")[2]
            if "gamma" in kind or "variance" in kind or kind == "variable":
                weight.assign(rng.uniform(0.8, 1.2, weight.shape))
            elif len(weight.shape) == 1 and weight.dtype == "float32":
                weight.assign(rng.normal(0, 0.1, weight.shape))


def random_inputs(model: keras.Model, count: int = _EXAMPLES) -> dict[str, npt.NDArray[Any]]:
    """Return random inputs [count, ...] of a model by name; token ids are within their table."""
    rng = np.random.default_rng(1)
    inputs: dict[str, npt.NDArray[Any]] = {}
    for tensor in model.inputs:
        shape = (count, *tensor.shape[1:])
        if tensor.dtype == "float32":
            inputs[tensor.name] = rng.normal(size=shape).astype(np.float32)
        else:
            inputs[tensor.name] = rng.integers(
                0, _TOKENS if tensor.name == "token_ids" else 2, shape, np.int32
            )
    return inputs


def _call(model: keras.Model, inputs: dict[str, npt.NDArray[Any]]) -> list[Array]:
    ordered = [inputs[tensor.name] for tensor in model.inputs]
    outputs = model(ordered if isinstance(model.input, list) else ordered[0], training=False)
    return [np.asarray(value) for value in keras.tree.flatten(outputs)]


def _packaged(model: keras.Model, inputs: dict[str, npt.NDArray[Any]]) -> list[Array]:
    outputs = run_network(convert(model), inputs)
    return [outputs[name] for name in output_names(model)]


def _difference(expected: list[Array], actual: list[Array]) -> float:
    """Return the largest difference, relative to the largest value."""
    return max(
        float(np.abs(left - right).max() / np.abs(left).max())
        for left, right in zip(expected, actual, strict=True)
    )


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="check only these architectures")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the table in Markdown")


if __name__ == "__main__":
    sys.exit(run("porting.support_matrix", TARGETS, measure, sys.argv[1:], _add_options))
