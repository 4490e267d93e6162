"""Numbers of training steps at a pace: a factor that fits them into a time."""


def paced_steps(steps: int, pace: float) -> int:
    """Return a number of training steps multiplied by a factor, at least 1 unless there are none."""
    return max(1, round(pace * steps)) if steps else 0
