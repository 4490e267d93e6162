"""The check that the description of a package's folded norms fits its network."""

from collections.abc import Iterator
from typing import Any, Final

from mistify.adaptation.observing import observed_signatures
from mistify.errors import MistifyError, Problem
from mistify.package.adaptation import ADAPTATION, AdaptationStore, FoldedNorm
from mistify.package.manifest import NETWORK
from mistify.package.opened import Package
from mistify.package.records import corrupt_package
from mistify.package.training import OutputEncoding
from mistify.tflite.combining import names_of, read_network
from mistify.tflite.linear import linear_operator

__all__ = ["check_fits", "unfitting"]

_SINGLE: Final = (OutputEncoding.SIGMOID, OutputEncoding.LOGIT)


def check_fits(package: Package, store: AdaptationStore) -> None:
    """Check that a network has the norms and the output that the package describes.

    Raises:
        MistifyError: CORRUPT_PACKAGE, with everything that it lacks.
    """
    model = read_network(package.read(NETWORK))
    graphs = observed_signatures(model, len(package.manifest.branches))
    misfits = [*_misfits_of_norms(model, store), *_misfits_of_output(model, store, [*graphs.values()])]
    observed = {graph for norm in store.norms for graph, _ in norm.operators}
    if not observed & {signature.subgraphIndex for signature in graphs.values()}:
        misfits.append("norms in none of the graphs that run")
    if misfits:
        expected = "folded norms and an output with classes"
        raise unfitting(package, ADAPTATION, "; ".join(misfits), expected)


def unfitting(package: Package, name: str, actual: str, expected: str) -> MistifyError:
    """Return the error of a file that describes what the network of a package does not have."""
    problem = Problem(
        str(package.directory / name), actual, f"{expected} of its {NETWORK}", "fetch the package again"
    )
    return corrupt_package(package.directory, [problem])


def _misfits_of_norms(model: Any, store: AdaptationStore) -> Iterator[str]:
    for norm in store.norms:
        for graph, operator in norm.operators:
            if not _is_norm(model, norm, graph, operator):
                channels = f"{norm.channels} channels"
                yield f"no linear operator of {channels} for {norm.name} at {operator} in graph {graph}"


def _is_norm(model: Any, norm: FoldedNorm, number: int, operator: int) -> bool:
    if number >= len(model.subgraphs) or operator >= len(model.subgraphs[number].operators):
        return False
    graph = model.subgraphs[number]
    linear = linear_operator(model, graph, operator)
    return linear is not None and int(graph.tensors[linear.output].shape[-1]) == norm.channels


def _misfits_of_output(model: Any, store: AdaptationStore, signatures: list[Any]) -> Iterator[str]:
    width = 1 if store.kind in _SINGLE else store.classes
    for signature in signatures:
        outputs = names_of(signature.outputs)
        if store.output not in outputs:
            yield f'no output "{store.output}"'
            continue
        shape = [*model.subgraphs[signature.subgraphIndex].tensors[outputs[store.output]].shape]
        if len(shape) != 2 or shape[1] != width or (width == 1 and store.classes != 2):
            yield f'the output "{store.output}" {shape} for {store.classes} classes'
