"""The observers of a package's graphs: of its only network, or of each branch."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.adaptation.adapter import GraphObserver
from mistify.adaptation.statistics import FoldedNorms, Statistics
from mistify.package.adaptation import Arrays, FoldedNorm
from mistify.package.manifest import SIGNATURE, branch_signature, fixed_batch_signature
from mistify.package.training import OutputEncoding
from mistify.tflite.combining import read_network
from mistify.tflite.observing import Observer, observed_network

__all__ = ["folded_norms", "graph_observers", "observed_networks", "observed_signatures", "probabilities"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]

_SINGLE: Final = (OutputEncoding.SIGMOID, OutputEncoding.LOGIT)


def folded_norms(norms: Sequence[FoldedNorm], arrays: Arrays) -> FoldedNorms:
    """Return the norms with their numbers, by name as in `statistics.safetensors`."""
    return FoldedNorms(
        tuple(norm.channels for norm in norms),
        arrays["gamma"],
        arrays["beta"],
        arrays["epsilon"],
        Statistics(arrays["mean"], arrays["variance"]),
        np.array([*(norm.variance_move for norm in norms), *(norm.mean_move for norm in norms)], np.float32),
    )


def observed_signatures(model: Any, branches: int) -> dict[str, Any]:
    """Return the signature of the only graph, or of each branch, by its name.

    Args:
        model: Returned by `read_network`.
        branches: The number of branches; 0 for a single network.
    """
    signatures = {signature.signatureKey.decode(): signature for signature in model.signatureDefs}
    keys = [*map(branch_signature, range(branches))] if branches else [SIGNATURE]
    fixed = {key: fixed_batch_signature(key) for key in keys}
    names = [fixed[key] if fixed[key] in signatures else key for key in keys]
    return {name: signatures[name] for name in names}


def observed_networks(
    network: bytes, norms: Sequence[FoldedNorm], branches: int
) -> Iterator[tuple[list[int], bytes]]:
    """Yield the norms and the observed network of the only graph, or of each branch.

    Args:
        network: Content of `serve.tflite`.
        norms: The norms and their places.
        branches: The number of branches; 0 for a single network.

    Raises:
        ValueError: An operator of the network is bound to its file.
    """
    for signature, definition in observed_signatures(read_network(network), branches).items():
        places = {
            number: operator
            for number, norm in enumerate(norms)
            for graph, operator in norm.operators
            if graph == definition.subgraphIndex
        }
        if places:
            yield [*places], observed_network(network, signature, [*places.values()])


def graph_observers(
    networks: Sequence[tuple[Sequence[int], bytes]], output: str, kind: OutputEncoding
) -> list[GraphObserver]:
    """Return the observers of observed networks.

    Args:
        networks: The norms and the observed network of each graph.
        output: The output with the classes.
        kind: The form of its values, such as logits.
    """
    return [
        GraphObserver(norms, _runs(Observer(network, len(norms)), output, kind))
        for norms, network in networks
    ]


def _runs(observer: Observer, output: str, kind: OutputEncoding) -> Any:
    def run(
        example: Mapping[str, Array], factors: Sequence[Floats], summands: Sequence[Floats]
    ) -> tuple[Array, Sequence[Floats], Sequence[Floats]]:
        seen = observer(example, factors, summands)
        return probabilities(seen.outputs[output], kind)[0], seen.means, seen.squares

    return run


def probabilities(values: Array, kind: OutputEncoding) -> Array:
    """Return the probabilities of classes of each example [batch, classes].

    Args:
        values: An output [batch, classes], or [batch, 1] for the probability of yes.
        kind: The form of its values, such as logits.
    """
    predicted = kind.predictions(values)
    return np.concatenate([1 - predicted, predicted], axis=1) if kind in _SINGLE else predicted
