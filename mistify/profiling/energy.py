"""The energy of the processor, if the device measures it (Linux powercap, provided by RAPL)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Returns joules since a fixed time.
EnergyCounter = Callable[[], float]

_POWERCAP: Final = Path("/sys/class/powercap")
_UJ_PER_J: Final = 1e6


@dataclass
class _Zone:
    """A metered part of the device; its counter restarts at 0 after `wraps_at`."""

    path: Path
    wraps_at: int
    turns: int = 0
    last: int = 0

    def microjoules(self) -> int:
        count = int(self.path.read_text())
        self.turns += count < self.last
        self.last = count
        return self.turns * self.wraps_at + count


def energy_counter(powercap: Path = _POWERCAP) -> EnergyCounter | None:
    """Return the counter of all processors of this device and of their memory, if metered separately.

    Returns:
        The counter; None if there is none, or it is not readable (on most systems, only root may read it).
    """
    try:
        zones = [
            _Zone(zone / "energy_uj", int((zone / "max_energy_range_uj").read_text()))
            for zone in _zones(powercap)
        ]
        for zone in zones:
            zone.microjoules()
    except (OSError, ValueError):
        return None
    return (lambda: sum(zone.microjoules() for zone in zones) / _UJ_PER_J) if zones else None


def _zones(powercap: Path) -> Iterator[Path]:
    """Yield the zones of processors, which include cores and graphics, and of memory, which is separate."""
    for zone in sorted(powercap.glob("intel-rapl:*")):
        name = (zone / "name").read_text().strip()
        if name.startswith("package-") or name == "dram":
            yield zone
