"""Devices that tune, as the tests of tuning have them."""

from tests.mistify_client.tuning.conftest import address, device, scales, store

__all__ = ["address", "device", "scales", "store"]
