"""The current time, and times for people, in UTC."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


def moment(unix_ms: float, timespec: str = "minutes") -> str:
    """Format a time for people: `2026-11-28 10:43 UTC`; a dash for a time out of range.

    Args:
        unix_ms: Milliseconds since 1970, which may come from a machine whose clock is wrong.
        timespec: The smallest unit shown, as for `datetime.isoformat`.
    """
    try:
        time = datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (ValueError, OverflowError):
        return "-"
    return f"{time.replace(tzinfo=None).isoformat(' ', timespec)} UTC"
