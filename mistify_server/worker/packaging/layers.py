"""Comparison of the layers of a goal's network with the source's: cuts, costs and times."""

from collections.abc import Iterable
from dataclasses import replace

from executors.structure import Structure
from mistify.costs.budget import LATENCY, quantity_of
from mistify.costs.catalogue import HOST, host_profile_name
from mistify.costs.layer import LayerCost
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import HardwareProfile
from mistify.jobs.details import LayerChange, LayerFigures, LayerTable
from mistify_server.tasks.tasks import PackageTask


def profile_of(task: PackageTask) -> HardwareProfile:
    """Return the hardware on which a package's goal limits latency, or else this machine."""
    spec = task.spec
    limited = [axis.partition("@")[2] for axis in spec.budget if quantity_of(axis) == LATENCY]
    host = host_profile_name(spec.quantization.precision, spec.threads)
    hardware = task.recipe.hardware
    return next((hardware[name] for name in (*limited, host) if name in hardware), HOST)


def layer_table(source: Structure, network: Structure, profile: HardwareProfile) -> LayerTable:
    """Return the layers of a network, compared with the source from which it was cut.

    Args:
        source: The structure of the source.
        network: The structure of the network.
        profile: The hardware profile that predicts times.
    """
    before, after = _figures(source, profile), _figures(network, profile)
    kinds = {
        name: type(layer).__name__
        for structure in (network, source)
        for name, layer in structure.graph.layers.items()
    }
    groups = {
        node.name: tuple(structure.channels[node.output].per_unit)
        for structure in (network, source)
        for node in structure.graph.nodes
    }
    return LayerTable(
        profile.name,
        tuple(
            LayerChange(name, kinds[name], groups[name], before.get(name), after.get(name))
            for name in _merged(list(before), list(after))
        ),
    )


def _figures(structure: Structure, profile: HardwareProfile) -> dict[str, LayerFigures]:
    """Return the figures of the layers with operators in LiteRT, including work of fused layers, in order."""
    network = structure.network()
    widths = {node.name: int(structure.graph.shapes[node.output][-1] or 0) for node in structure.graph.nodes}
    rests: dict[int, str] = {}
    figures: dict[str, LayerFigures] = {}
    for layer in network.layers:
        into = (
            layer.name
            if layer.operations
            else next((rests[t] for t in layer.inputs if t in rests), layer.name)
        )
        rests[layer.output] = into
        known = figures.get(into, LayerFigures(widths[into], 0, 0, 0.0))
        figures[into] = replace(
            known,
            params=known.params + layer.params,
            multiply_adds=known.multiply_adds + layer.multiply_adds,
            milliseconds=known.milliseconds + milliseconds_alone(layer, network, profile),
        )
    return figures


def milliseconds_alone(layer: LayerCost, network: NetworkCost, profile: HardwareProfile) -> float:
    """Return the predicted time of a layer in milliseconds, without the constant time of an inference."""
    alone, nothing = (replace(network, layers=those, inputs=(), outputs=()) for those in ((layer,), ()))
    return max(0.0, profile.latency_ms(alone) - profile.latency_ms(nothing))


def _merged(first: list[str], second: Iterable[str]) -> list[str]:
    """Merge names in the order of the first list; other names follow their predecessor."""
    merged, place = list(first), 0
    for name in second:
        if name in merged:
            place = merged.index(name) + 1
        else:
            merged.insert(place, name)
            place += 1
    return merged
