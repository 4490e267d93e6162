"""The hardware to which the latencies in a package's manifest refer."""

from dataclasses import replace

from mistify.costs.budget import latency_axis
from mistify.costs.catalogue import is_host
from mistify.package.manifest import Manifest
from mistify_client.runtime.options import PackageOptions, own_host, parts


def expected_on(hardware: str, options: PackageOptions, manifest: Manifest) -> PackageOptions:
    """Return options with the latencies predicted for hardware.

    If the package was not made for it (see `made_for`), latencies are unchanged. With exits, the hardware is
    slower or faster by the same factor as with the goal's own network. Latencies of subnets and
    slices, which were measured on this device, are never changed.

    Args:
        hardware: Name of a hardware profile.
    """
    if options.paged or is_host(hardware) or not made_for(manifest, hardware):
        return options
    axis, own = latency_axis(hardware), parts(manifest)
    slower = own[options.default].achieved[axis] / own[options.default].latency.median_ms
    latencies_ms = [part.achieved[axis] for part in own]
    latencies_ms += [slower * option.costs.latency_ms for option in options.options[len(own) :]]
    predicted = tuple(
        replace(option, costs=replace(option.costs, latency_ms=latency_ms, p95_ms=None))
        for option, latency_ms in zip(options.options, latencies_ms, strict=True)
    )
    return replace(options, options=predicted, hardware=hardware)


def made_for(manifest: Manifest, hardware: str) -> bool:
    """Return True if a manifest has latencies for a hardware profile.

    Every manifest has the host's, with the number of threads of the measurement.
    """
    if is_host(hardware):
        return hardware == own_host(manifest)
    return all(latency_axis(hardware) in part.achieved for part in parts(manifest))
