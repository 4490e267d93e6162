"""Fleets of the coordinator benchmark, with a real server."""

from benchmarks.tuning.coordinator import PEERS, serving


def test_devices_of_a_fleet_find_their_nearest_peers():
    with serving(12) as fleet:
        assert len(fleet.devices) == 12
        assert fleet.seconds > 0
        peers = fleet.lookup(fleet.devices[0])
        assert len(set(peers)) == PEERS
        assert fleet.devices[0].key.member not in peers
        assert fleet.recall() == 1
