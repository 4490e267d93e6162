"""Ranges of integer activations that a source was quantized with, in place of calibrated ones."""

from collections.abc import Collection, Mapping
from typing import Any

from executors.sources.contract import Range
from mistify.tflite.combining import names_of, read_network
from mistify.tflite.packing import packed
from mistify_server.worker.packaging.tflite.layer_names import layer_at


def with_source_ranges(calibrated: bytes, ranges: Mapping[str, Range], layers: Collection[str]) -> bytes:
    """Return a calibrated network in which the outputs of layers have other ranges.

    Args:
        calibrated: A `.tflite` in float32 with the range of each activation.
        ranges: Layer, input or output -> its range. Of layers that were fused, the last one counts.
        layers: All layers, inputs and outputs of the network.
    """
    network = read_network(calibrated)
    for signature in network.signatureDefs:
        graph = network.subgraphs[signature.subgraphIndex]
        makers = _last_tensors(graph, layers)
        makers.update(names_of(signature.inputs) | names_of(signature.outputs))
        for layer in makers.keys() & ranges.keys():
            quantization = graph.tensors[makers[layer]].quantization
            if quantization is not None and quantization.min is not None:
                quantization.min, quantization.max = ([bound] for bound in ranges[layer])
    return packed(network)


def _last_tensors(graph: Any, layers: Collection[str]) -> dict[str, int]:
    """Return the last tensor that each layer makes."""
    made = {}
    for operator in graph.operators:
        for number in operator.outputs:
            last, *_ = graph.tensors[number].name.decode().split(";")
            layer = layer_at(last, layers)
            if layer is not None:
                made[layer] = int(number)
    return made
