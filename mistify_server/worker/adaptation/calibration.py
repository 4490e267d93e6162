"""Calibration of this machine's profiles with a source's latency in LiteRT (paper 4.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

import keras
import numpy as np

from executors.data import Dataset
from executors.structure import analyse, narrow, removable_blocks, remove_blocks
from mistify.costs.catalogue import host_profile_name, is_host
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import MeasuredNetwork, MeasuredProfile, Profile
from mistify.costs.quantization import STORED, Quantization
from mistify_server.worker.adaptation.latency import Profiles, latencies
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement.isolated import latencies_of
from mistify_server.worker.resource_errors import suppress_conversion_errors

#: Units per group in the small network: one tile of LiteRT's kernels, which is not faster with fewer units.
_UNITS: Final = 8


def calibrated(profiles: Profiles, source: keras.Model) -> Profiles:
    """Return the profiles with this machine's profiles corrected by the source's latency in LiteRT."""
    return calibrated_by(profiles, analyse(source).network(), convert(source))


def calibrated_by(profiles: Profiles, cost: NetworkCost, network: bytes) -> Profiles:
    """Return the profiles with this machine's profiles corrected by a converted network's latency.

    The latency is measured with each profile's number of threads. A network that LiteRT cannot run here
    changes nothing.
    """
    return tuple(
        _calibrated_by(profile, cost, network) if is_host(profile.name) else profile for profile in profiles
    )


def _calibrated_by(host: Profile, cost: NetworkCost, network: bytes) -> Profile:
    measured = latencies_of({host.name: network}, host.threads).get(host.name)
    return host if measured is None else host.slower(measured.median_ms / host.latency_ms(cost))


def calibrated_host(
    host: Sequence[MeasuredProfile],
    source: keras.Model,
    train: Dataset,
    threads: int = 1,
) -> Iterator[MeasuredProfile]:
    """Yield this machine's profile at each precision, calibrated with the source and its minimal network.

    The source is measured at each precision, the minimal network only in float32 and int8: its kernels are
    too small to differ at other precisions. For numbers of threads without measurements, all networks are
    assumed to have the same speedup over one thread as these two. If one cannot be converted or run here, its
    float32 latency is assumed; a minimal network that cannot run at all is ignored. A source that cannot run
    here in float32 changes nothing.

    Args:
        host: Profiles measured in float32 and int8, with one thread and possibly other numbers.
        train: Training data, the source of examples for the conversion.
        threads: Number of threads for which the profiles predict latencies.
    """
    least = least_network(source)
    source_cost, least_cost = (analyse(network).network() for network in (source, least))
    source_ms = latencies(source, STORED[1:], train, threads)
    least_ms: Mapping[Quantization, float] = {}
    with suppress_conversion_errors():
        least_ms = latencies(least, (Quantization.INT8,), train, threads)
    with_one = {profile.integer: profile for profile in host if profile.threads == 1}
    known = with_one | {profile.integer: profile for profile in host if profile.threads == threads}
    for precision in STORED:
        profile = _at(known, precision if precision in source_ms else Quantization.NONE)
        took_ms = source_ms.get(precision, source_ms.get(Quantization.NONE))
        if took_ms is not None:
            large = small = MeasuredNetwork(source_cost, took_ms)
            at = precision if precision.integer and precision in least_ms else Quantization.NONE
            if at in least_ms:
                small = MeasuredNetwork(least_cost, least_ms[at])
            profile = profile.fitted(large, small)
        yield replace(profile, name=host_profile_name(precision, threads), threads=threads)


def at_each_precision(profiles: Profiles) -> Profiles:
    """Return the profiles with this machine's profile at each precision, assuming equal speed."""
    hosts = [profile for profile in profiles if is_host(profile.name)]
    others = (profile for profile in profiles if not is_host(profile.name))
    at_each = (
        replace(host, name=host_profile_name(precision, host.threads))
        for host, precision in product(hosts, STORED)
    )
    return (*at_each, *others)


def least_network(source: keras.Model) -> keras.Model:
    """Return a small network to measure in addition to a source: few units in each group, and no blocks.

    Rules for layers are ignored, because very different networks reveal most about the machine. There must be
    enough units for some to be active: LiteRT cannot quantize a tensor that is always zero.
    """
    structure = analyse(source)
    least = remove_blocks(structure, removable_blocks(structure))
    return narrow(
        least,
        {name: np.arange(group.size) < max(group.least, _UNITS) for name, group in least.groups.items()},
    )


def _at(known: Mapping[bool, MeasuredProfile], precision: Quantization) -> MeasuredProfile:
    """Return this machine's profile at a precision.

    Args:
        known: Whether arithmetic uses integers -> measured profile.
    """
    if precision is Quantization.DYNAMIC:
        return replace(known[False], kernels=known[True].model)
    return known[precision.integer]
