"""Files in which Linux shows the state of a device: memory of control groups, pressure, power."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Version 1 of control groups writes a limit of this size or more if there is none.
_NO_LIMIT: Final = 2**60

_UNIT: Final = 1e-6


@dataclass(frozen=True)
class SystemFiles:
    """The files of the kernel, below the directories where they are mounted.

    The value of a file that is missing, or may not be read, is None, never 0.
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")

    def pressure(self, resource: str) -> float | None:
        """Return the share of the last 10 seconds in which processes waited for a resource, 0 to 1.

        Args:
            resource: "cpu" or "memory".
        """
        text = _text(self.proc / "pressure" / resource) or ""
        for line in text.splitlines():
            kind, *fields = line.split()
            if kind == "some":
                return _number(dict(field.split("=") for field in fields).get("avg10"), 0.01)
        return None

    def memory_headroom(self, pid: int) -> int | None:
        """Return the bytes that a process may still allocate within the limits of its control groups.

        Cached files that the kernel can drop at once do not count as used.

        Returns:
            The smallest of the groups around the process; None if none of them has a limit.
        """
        headrooms = (self._headroom(*group) for group in self._groups(pid))
        return min((free for free in headrooms if free is not None), default=None)

    def battery_watts(self) -> float | None:
        """Return the watts that all discharging batteries supply; None if none reports any."""
        supplies = sorted((self.sys / "class" / "power_supply").glob("*"))
        watts = [_battery_watts(supply) for supply in supplies if _text(supply / "status") == "Discharging"]
        known = [each for each in watts if each is not None]
        return sum(known) if known else None

    def _groups(self, pid: int) -> Iterator[tuple[Path, str, str, str]]:
        """Yield the control groups around a process, with the names of their files (versions 2 and 1)."""
        mounted = self.sys / "fs" / "cgroup"
        unified = mounted / "unified" if (mounted / "unified").is_dir() else mounted
        for line in (_text(self.proc / str(pid) / "cgroup") or "").splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0":
                root, names = unified, ("memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                root = mounted / "memory"
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            else:
                continue
            inner = root / path.lstrip("/")
            for group in (inner, *inner.parents):
                if group.is_relative_to(root):
                    yield group, *names

    @staticmethod
    def _headroom(group: Path, limit_file: str, used_file: str, cached: str) -> int | None:
        limit, used = _number(_text(group / limit_file)), _number(_text(group / used_file))
        if limit is None or used is None or limit >= _NO_LIMIT:
            return None
        lines = (line.split() for line in (_text(group / "memory.stat") or "").splitlines())
        dropped = next((_number(line[1]) for line in lines if line[0] == cached), None)
        return max(0, round(limit - used + (dropped or 0)))


def _battery_watts(supply: Path) -> float | None:
    power = _number(_text(supply / "power_now"), _UNIT)
    if power is not None:
        return abs(power)
    current, voltage = (_number(_text(supply / f"{name}_now"), _UNIT) for name in ("current", "voltage"))
    return None if current is None or voltage is None else abs(current * voltage)


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None


def _number(text: str | None, unit: float = 1.0) -> float | None:
    """Return a number in its unit; None if there is none, such as a limit of "max"."""
    try:
        return None if text is None else float(text) * unit
    except ValueError:
        return None
