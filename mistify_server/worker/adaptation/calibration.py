"""Profiles of this machine, calibrated by a source's latency in LiteRT (paper 4.1)."""

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

#: Of a group in the small network: a tile of LiteRT's kernels, which takes no less with fewer.
_UNITS: Final = 8


def calibrated(profiles: Profiles, source: keras.Model) -> Profiles:
    """Return the profiles, with this machine's corrected to predict the latency of the source in LiteRT."""
    return calibrated_by(profiles, analyse(source).network(), convert(source))


def calibrated_by(profiles: Profiles, cost: NetworkCost, network: bytes) -> Profiles:
    """Return the profiles, with this machine's corrected to predict the latency of a converted network.

    It is measured with the threads of each. A network that LiteRT cannot run here corrects nothing.
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
    """Yield this machine's profile at each precision, corrected to predict the source and its least network.

    The source is measured at each precision, the least network in float32 and int8: its kernels are too small
    to differ at others. With numbers of threads that the machine was not measured with, all networks are
    assumed to gain as much over one thread as these do. If they cannot be converted, or cannot run here, they
    are assumed to take as long as in float32; a least network that cannot run at all does not count. A source
    that cannot run here in float32 corrects nothing.

    Args:
        host: Profiles measured in float32 and int8, with one thread and perhaps with others.
        train: Provides examples to convert the network with.
        threads: Number of threads that the profiles predict latencies for.
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
    """Return the profiles with this machine's at each precision, where networks are assumed to be as fast."""
    hosts = [profile for profile in profiles if is_host(profile.name)]
    others = (profile for profile in profiles if not is_host(profile.name))
    at_each = (
        replace(host, name=host_profile_name(precision, host.threads))
        for host, precision in product(hosts, STORED)
    )
    return (*at_each, *others)


def least_network(source: keras.Model) -> keras.Model:
    """Return a small network to measure beside a source: few units of each group, and no block.

    Rules for layers are ignored: very different networks say most about the machine. But there have to be
    enough units for some to be active: LiteRT has no integers for a tensor that is always zero.
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
        known: Whether integers are computed -> profile measured.
    """
    if precision is Quantization.DYNAMIC:
        return replace(known[False], kernels=known[True].model)
    return known[precision.integer]
