"""The device classes that configs can name, by their data sheets (paper 4.1, Table 1)."""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from mistify.costs.budget import HOST_NAME, at_threads
from mistify.costs.efficiency import MEASURED
from mistify.costs.profiles import NominalProfile
from mistify.costs.quantization import Quantization


def data_sheet(name: str, compute_power: float, memory_bandwidth: float) -> NominalProfile:
    """Return the profile of a device class from its data sheet, scaled to the throughput that runtimes reach.

    Args:
        compute_power: Peak in GFLOP/s.
        memory_bandwidth: GB/s.
    """
    return NominalProfile(name, compute_power, memory_bandwidth, efficiency=MEASURED)


def _gpu(name: str, compute_power: float, memory_bandwidth: float) -> NominalProfile:
    """Return the profile of a GPU, as `data_sheet` does, with the launch time of each operator."""
    return replace(data_sheet(name, compute_power, memory_bandwidth), operator_us=_KERNEL_LAUNCH_US)


#: Time to launch a GPU kernel. NVIDIA's "Getting Started with CUDA Graphs" reports, for a kernel of 2.9 us on
#: a V100, 9.6 us in total with synchronisation and 3.8 us when queued: a few microseconds of overhead.
_KERNEL_LAUNCH_US: Final = 5.0

#: Overhead of an inference on an Edge TPU. No network in Coral's "Edge TPU performance benchmarks" takes less
#: than 2.0 ms (SqueezeNet), although its peak would allow 0.4 ms; we assume a quarter of that for small
#: networks, which the benchmarks do not include.
_EDGE_TPU_START_US: Final = 500.0

#: The server's machine. Nominal figures of one core; the server calibrates them with measurements.
HOST = data_sheet(HOST_NAME, 50.0, 10.0)

_PROFILES = (
    HOST,
    # Table 1 of the paper.
    _gpu("v100", 112_000.0, 900.0),
    _gpu("2080", 11_700.0, 480.0),
    _gpu("jetson-tx2", 1_500.0, 58.0),
    _gpu("jetson-nano", 470.0, 25.0),
    data_sheet("raspberry-pi", 6.0, 8.5),
    # Table 1 has no bandwidth for it; this is the M.2 accelerator's PCIe Gen2 x1 link (Coral data sheet).
    replace(
        data_sheet("edge-tpu", 4_000.0, 0.5),
        inference_us=_EDGE_TPU_START_US,
        precisions=(Quantization.INT8, Quantization.INT8_QAT),
    ),
    # NVIDIA data sheets: single precision without tensor cores, and memory bandwidth.
    _gpu("a100", 19_500.0, 1_555.0),
    _gpu("t4", 8_100.0, 320.0),
    # NVIDIA Jetson data sheets: CUDA cores x 2 x highest clock, and memory bandwidth.
    _gpu("jetson-agx-orin", 5_325.0, 204.8),
    _gpu("jetson-orin-nano", 1_280.0, 68.0),
    # Raspberry Pi product briefs: cores x clock x single-precision operations per cycle (8 on the
    # Cortex-A72, 16 on the Cortex-A76), and 32 bits at 3,200 and 4,267 MT/s.
    data_sheet("raspberry-pi-4", 48.0, 12.8),
    data_sheet("raspberry-pi-5", 153.6, 17.1),
)
_CATALOGUE = MappingProxyType({profile.name: profile for profile in _PROFILES})


def host_profile_name(precision: Quantization, threads: int = 1) -> str:
    """Return the name of this machine's measured profile at a precision: `host` or `host@dynamic`.

    With several threads: `host@4-threads` or `host@4-threads@dynamic`.
    """
    host, stored_as = at_threads(HOST.name, threads), precision.stored_as
    return host if stored_as is Quantization.NONE else f"{host}@{stored_as.value}"


def is_host(profile: str) -> bool:
    """Check whether a profile is for this machine, at any precision and with any number of threads."""
    return profile.partition("@")[0] == HOST.name


def catalogue() -> MappingProxyType[str, NominalProfile]:
    """Return the known profiles by name, read-only."""
    return _CATALOGUE
