"""What the fields of forms for goals offer: limits and hardware."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from mistify.costs.axes import axis_registry
from mistify.costs.catalogue import HOST, catalogue
from mistify_server.services import Services

#: The key of the accuracy among the limits.
ACCURACY: Final = "accuracy"


def limit_titles() -> Mapping[str, str]:
    """Return the titles of limits, and of the accuracy, by their keys in configs."""
    titles = {key: axis.label for key, axis in axis_registry().axes.items()}
    return {**titles, ACCURACY: "accuracy, at least"}


async def known_hardware(services: Services) -> Sequence[str]:
    """Return the names of the hardware other than this machine that goals can be for."""
    measured = await asyncio.to_thread(services.devices.devices)
    return sorted({*catalogue(), *(device.name for device in measured)} - {HOST.name})
