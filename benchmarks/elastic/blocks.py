"""Networks assembled from blocks compared with the same networks converted as a whole.

`python -m benchmarks.elastic.blocks [--quick] [--json FILE] [NAME ...]`

Twelve architectures of the support matrix, with random weights, are divided into segments with at most a
tenth of the parameters, and packaged as block stores in float32 and in int8. Each is compared with the same
network converted as a whole.

- `float_difference`: the difference between the outputs of the stitched and the whole network, relative to
  the largest output;
- `int8_steps`: the same in int8, in quantization steps of the output. The whole network has the tensors
  between blocks as additional outputs. Without them, LiteRT adds in place during calibration, and the
  converter takes the ranges of the sums for those of the summands. `int8_package_steps` is the difference
  from a network without these outputs;
- `stitched`: the latency of the stitched network, which packages run, relative to the whole network: the
  median over the architectures, and the worst. The two are measured alternately. With one thread, times are
  CPU seconds, because longer calls wait more often on a busy core; with two threads, if the process has two
  cores, they are wall-clock seconds;
- `chained`: the same for a chain of the blocks, which runs until they have been stitched;
- `memory_share`: the resident memory of one block of a 40 MB store relative to that of the whole network,
  both less that of a process that has loaded neither;
- `stitch_ms`: CPU milliseconds for stitching the blocks of a 1 MB network.
"""

import math
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.elastic.block_stores import LARGEST, memory_share, stitch_ms
from benchmarks.harness.run import Figures, Target, run, seconds
from benchmarks.porting.support_matrix import architectures, random_inputs, randomise
from executors.structure.blocks import Block, blocks_of
from executors.structure.exporting import NamedFunction, constant
from executors.structure.reading.reader import read_graph
from executors.structure.signature import output_names
from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.quantization import Quantization
from mistify.profiling.measuring import random_input
from mistify.tflite.combining import names_of, read_network
from mistify.tflite.resizable import resizable
from mistify.tflite.session import Session
from mistify.wording import counted
from mistify_client.assembly.stitching import stitched
from mistify_server.worker.packaging.conversion.blocks import block_store
from mistify_server.worker.packaging.conversion.converter import convert_function, saved
from mistify_server.worker.packaging.conversion.representative import Examples, one_by_one, typed
from mistify_server.worker.packaging.tflite.runner import Arrays, Runner

NAMES: Final = (
    *("MobileNetV3Small", "BERT classifier", "BERT span", "MobileNet", "MobileNetV2", "MobileNetV3Large"),
    *("EfficientNetB0", "EfficientNetV2B0", "ResNet50V2", "ResNet50", "DenseNet121", "NASNetMobile"),
)
QUICK: Final = ("MobileNet", "MobileNetV3Small", "BERT classifier")
PRECISIONS: Final = {"float": Quantization.NONE, "int8": Quantization.INT8}

TARGETS: Final[dict[str, Target]] = {
    "float_difference": {
        "what": "stitched and whole network, float32: difference relative to the output",
        "max": 1e-6,
    },
    "int8_steps": {"what": "stitched and whole network, int8: difference in output steps", "max": 1},
    **{
        f"{precision}_stitched_{threads}": {
            "what": f"latency of stitched blocks relative to the whole network, {precision}, "
            f"{threads.replace('_', ' ')}",
            "max": 1.02,
        }
        for threads in ("1_thread", "2_threads")
        for precision in ("float", "int8")
    },
    "memory_share": {"what": "memory of one block relative to the whole network, 40 MB store", "max": 0.25},
    "stitch_ms": {"what": "stitching 11 blocks of 1.1 MB, ms", "max": 100},
}

#: Number of examples for calibration and for comparing outputs.
_EXAMPLES: Final = 10

#: Rounds of alternating measurements, and passes per round.
_ROUNDS: Final = 20
_QUICK_ROUNDS: Final = 5
_PASSES: Final = 11

#: Width of the console, sufficient for the table.
_COLUMNS: Final = 150


@dataclass(frozen=True)
class Result:
    """The figures of an architecture at a precision.

    Attributes:
        blocks: Number of blocks.
        difference: Difference between the outputs of the stitched and the whole network, relative to the
            largest output.
        steps: The same in quantization steps of the output; NaN in float32.
        package_steps: The same for a whole network without the features among its outputs.
        whole_ms: Milliseconds of the whole network with one thread.
        stitched: Number of threads -> latency of the stitched network relative to the whole one.
        chained: Number of threads -> latency of a chain of the blocks relative to the whole network.
    """

    name: str
    precision: str
    blocks: int
    difference: float
    steps: float
    package_steps: float
    whole_ms: float
    stitched: Mapping[int, float]
    chained: Mapping[int, float]


class Ratios(NamedTuple):
    """The latency of a whole network, and the relative latencies of its blocks, stitched and chained."""

    whole_ms: float
    stitched: float
    chained: float


class Timing(NamedTuple):
    """The conditions of latency measurements: numbers of threads, and rounds."""

    threads: Sequence[int]
    rounds: int


def measure(options: Namespace) -> Figures:
    """Measure each architecture in a separate process, then memory and stitching, and print the tables."""
    names = options.names or (QUICK if options.quick else NAMES)
    cores = len(os.sched_getaffinity(0))
    threads = [count for count in (1, 2) if count <= cores]
    timing = Timing(threads, _QUICK_ROUNDS if options.quick else _ROUNDS)
    results: list[Result] = []
    context = get_context("spawn")
    for name in track(names, console=Console(stderr=True)):
        with ProcessPoolExecutor(1, mp_context=context) as process:
            results += process.submit(compare, name, timing).result()
        for result in results[-len(PRECISIONS) :]:
            Console(stderr=True).print(result)
    Console(width=_COLUMNS).print(_table(results))
    return {**_figures(results, threads), "memory_share": memory_share(), "stitch_ms": stitch_ms()}


def compare(name: str, timing: Timing) -> list[Result]:
    """Return the figures of an architecture at each precision."""
    keras.utils.set_random_seed(0)
    model = architectures()[name]()
    randomise(read_graph(model))
    examples = random_inputs(model, _EXAMPLES)
    blocks = blocks_of(model, LARGEST)
    results = []
    with saved(model) as network:
        for precision, quantization in PRECISIONS.items():
            files = block_store(blocks, quantization, examples)
            parts = {block.file: files[block.file] for block in blocks}
            whole = network.at(QuantizationConfig(precision=quantization), examples)
            reference = with_features(blocks, examples) if quantization.integer else whole
            compared = _compared(parts, whole, reference, examples)
            results.append(Result(name, precision, len(blocks), **compared, **_timed(parts, whole, timing)))
    return results


def _compared(
    parts: Mapping[str, bytes], whole: bytes, reference: bytes, examples: Examples
) -> dict[str, Any]:
    """Return the difference between the stitched blocks and the whole network."""
    network = stitched(parts)
    outputs, expected = Runner(network)(examples), Runner(reference)(examples)
    return {
        "difference": max(_difference(outputs, expected).values()),
        "steps": _steps(outputs, expected, network),
        "package_steps": _steps(outputs, Runner(whole)(examples), network),
    }


def _timed(parts: Mapping[str, bytes], whole: bytes, timing: Timing) -> dict[str, Any]:
    """Return the latency of the whole network, and the relative latencies of its blocks."""
    ratios = {threads: _ratios(whole, parts, threads, timing.rounds) for threads in timing.threads}
    return {
        "whole_ms": ratios[1].whole_ms,
        "stitched": {threads: each.stitched for threads, each in ratios.items()},
        "chained": {threads: each.chained for threads, each in ratios.items()},
    }


def with_features(blocks: Sequence[Block], examples: Examples) -> bytes:
    """Convert the network of blocks to int8 as a whole; tensors between blocks are additional outputs.

    Args:
        blocks: The blocks that make up the network, in order.
        examples: Input -> examples for calibration.
    """
    networks = [constant(block.model) for block in blocks]
    outputs = output_names(blocks[-1].model)

    def forward(*tensors: Any) -> Any:
        features: list[Any] = []
        for network in networks:
            tensors = tuple(tf.nest.flatten(network(*tensors)))
            features = [*tensors, *features]
        return features

    like = NamedFunction.like(blocks[0].model, forward)
    names = [*outputs, *(f"feature_{number}" for number in range(len(blocks) - 1))]
    rows = partial(one_by_one, typed(examples, blocks[0].model))
    return convert_function(
        NamedFunction(forward, like.inputs, names), QuantizationConfig(precision=Quantization.INT8), rows
    )


def _difference(outputs: Arrays, others: Arrays) -> dict[str, float]:
    """Return the differences between outputs, relative to the largest value, by name."""
    return {
        name: float(np.abs(values - others[name]).max() / np.abs(others[name]).max())
        for name, values in outputs.items()
    }


def _steps(outputs: Arrays, others: Arrays, network: bytes) -> float:
    """Return the differences between the outputs of an int8 network, in quantization steps."""
    scales = _scales(network)
    return max(
        (
            float(np.abs(values - others[name]).max()) / scales[name]
            for name, values in outputs.items()
            if name in scales
        ),
        default=math.nan,
    )


def _scales(network: bytes) -> dict[str, float]:
    """Return the quantization scales of a network's outputs, by name."""
    model = read_network(network)
    graph = model.subgraphs[0]
    writers = {operator.outputs[0]: operator for operator in graph.operators}
    scales = {}
    for name, tensor in names_of(model.signatureDefs[0].outputs).items():
        made_of = graph.tensors[writers[tensor].inputs[0]]
        if made_of.type == schema.TensorType.INT8:
            scales[name] = float(made_of.quantization.scale[0])
    return scales


def _ratios(whole: bytes, parts: Mapping[str, bytes], threads: int, rounds: int) -> Ratios:
    """Measure a whole network, the stitched one, and a chain of its blocks, alternately.

    They are loaded again in each round, because the memory addresses of a network affect its latency.
    """
    clock = process_time if threads == 1 else perf_counter
    networks = [[whole], [stitched(parts)], list(parts.values())]
    taken: list[list[float]] = [[] for _ in networks]
    for _ in range(rounds):
        chains = [[Session(resizable(part), threads) for part in network] for network in networks]
        example = {name: _random(entry) for name, entry in chains[0][0].inputs.items()}
        for times, chain in zip(taken, chains, strict=True):
            # The weights are not cached in the first pass.
            times.extend(seconds(partial(_run_chain, chain, example), _PASSES, clock)[1:])
    whole_s, stitched_s, chained_s = map(median, taken)
    return Ratios(1e3 * whole_s, stitched_s / whole_s, chained_s / whole_s)


def _run_chain(chain: Sequence[Session], example: Arrays) -> None:
    tensors: Arrays = example
    for session in chain:
        tensors = session(tensors)


def _random(entry: Mapping[str, Any]) -> Any:
    """Return a single example for an input."""
    return random_input((max(1, size) for size in entry["shape_signature"]), entry["dtype"])


def _figures(results: Sequence[Result], threads: Sequence[int]) -> dict[str, float]:
    figures: dict[str, float] = {}
    for precision in PRECISIONS:
        own = [result for result in results if result.precision == precision]
        for count in threads:
            name = counted(count, "thread").replace(" ", "_")
            figures[f"{precision}_stitched_{name}"] = median(result.stitched[count] for result in own)
            figures[f"{precision}_stitched_{name}_worst"] = max(result.stitched[count] for result in own)
            figures[f"{precision}_chained_{name}"] = median(result.chained[count] for result in own)
    floats = [result for result in results if result.precision == "float"]
    integers = [result for result in results if result.precision == "int8"]
    return {
        **figures,
        "float_difference": max(result.difference for result in floats),
        "int8_steps": max(result.steps for result in integers),
        "int8_package_steps": max(result.package_steps for result in integers),
    }


def _table(results: Sequence[Result]) -> Table:
    table = Table(title="blocks against whole networks", title_justify="left")
    threads = list(results[0].stitched)
    for column in (
        *("architecture", "precision", "blocks", "difference", "steps", "of the package", "whole, ms"),
        *(f"{kind}, {counted(count, 'thread')}" for kind in ("stitched", "chained") for count in threads),
    ):
        table.add_column(column, justify="left" if column in ("architecture", "precision") else "right")
    for result in results:
        table.add_row(
            *(result.name, result.precision, str(result.blocks), f"{result.difference:.1e}"),
            *(f"{steps:.2f}" for steps in (result.steps, result.package_steps)),
            f"{result.whole_ms:.3f}",
            *(f"{ratios[count]:.3f}" for ratios in (result.stitched, result.chained) for count in threads),
        )
    return table


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="measure only these architectures")


if __name__ == "__main__":
    sys.exit(run("elastic.blocks", TARGETS, measure, sys.argv[1:], _add_options))
