"""Profiles of this machine, calibrated by what LiteRT takes for a source (paper 4.1)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import keras
import numpy as np

from executors.data import Dataset
from executors.structure import analyse, narrow, removable_blocks, shallower
from mistify.costs.catalogue import host_profile_name, is_host
from mistify.costs.network import NetworkCost
from mistify.costs.profiles import MeasuredNetwork, MeasuredProfile
from mistify.costs.quantization import STORED, Quantization
from mistify_server.worker.adaptation.latency import Profiles, latencies
from mistify_server.worker.exhaustion import suppressed_but_for_exhaustion
from mistify_server.worker.packaging.conversion.converter import convert
from mistify_server.worker.packaging.measurement.latency import measure_latency


def calibrated(profiles: Profiles, source: keras.Model) -> Profiles:
    """Return the profiles, with this machine's corrected to predict the latency of the source in LiteRT."""
    return calibrated_by(profiles, analyse(source).network(), convert(source))


def calibrated_by(profiles: Profiles, cost: NetworkCost, network: bytes) -> Profiles:
    """Return the profiles, with this machine's corrected to predict the latency of a converted network.

    It is measured with the threads of each.
    """
    return tuple(
        profile.slower(measure_latency(network, profile.threads).median_ms / profile.latency_ms(cost))
        if is_host(profile.name)
        else profile
        for profile in profiles
    )


def calibrated_host(
    host: Sequence[MeasuredProfile],
    source: keras.Model,
    train: Dataset,
    threads: int = 1,
) -> Iterator[MeasuredProfile]:
    """Yield this machine's profile at each precision, corrected to predict the source and its least network.

    The source is measured at each precision, the least network in float32 and int8: its kernels are too small
    to differ at others. With threads that the machine was not measured with, networks are held to gain as
    much as these do over one. Where they cannot be converted, they are held to take as long as in float32; a
    least network that cannot be converted at all does not count.

    Args:
        host: As measured in float32 and int8, with one thread and perhaps with others.
        source: The network.
        train: Has some examples, to convert it with.
        threads: With which the profiles predict latencies.
    """
    least = least_network(source)
    source_cost, least_cost = (analyse(network).network() for network in (source, least))
    source_ms = latencies(source, STORED[1:], train, threads)
    least_ms: Mapping[Quantization, float] = {}
    with suppressed_but_for_exhaustion():
        least_ms = latencies(least, (Quantization.INT8,), train, threads)
    with_one = {profile.integer: profile for profile in host if profile.threads == 1}
    known = with_one | {profile.integer: profile for profile in host if profile.threads == threads}
    for precision in STORED:
        took_ms = source_ms.get(precision)
        profile = known[False] if took_ms is None else _at(known, precision)
        large = small = MeasuredNetwork(source_cost, took_ms or source_ms[Quantization.NONE])
        if least_ms:
            at = precision if precision.integer and precision in least_ms else Quantization.NONE
            small = MeasuredNetwork(least_cost, least_ms[at])
        name = host_profile_name(precision, threads)
        yield replace(profile.fitted(large, small), name=name, threads=threads)


def at_each_precision(profiles: Profiles) -> Profiles:
    """Return the profiles with this machine's at each precision, where networks are held to take the same."""
    hosts = [profile for profile in profiles if is_host(profile.name)]
    others = (profile for profile in profiles if not is_host(profile.name))
    at_each = (
        replace(host, name=host_profile_name(precision, host.threads))
        for host, precision in product(hosts, STORED)
    )
    return (*at_each, *others)


def least_network(source: keras.Model) -> keras.Model:
    """Return the network that a source can be cut to at the most: the least of each group, and no block.

    Rules for layers do not count: networks that are far apart tell most of the machine.
    """
    structure = analyse(source)
    least = shallower(structure, removable_blocks(structure))
    return narrow(least, {name: np.arange(group.size) < group.least for name, group in least.groups.items()})


def _at(known: Mapping[bool, MeasuredProfile], precision: Quantization) -> MeasuredProfile:
    """Return this machine's profile at a precision.

    Args:
        known: As measured in float32 and int8, by whether it is that of integers.
        precision: The precision.
    """
    if precision is Quantization.DYNAMIC:
        return replace(known[False], kernels=known[True].model)
    return known[precision.integer]
