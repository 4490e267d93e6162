from collections.abc import Callable

import pytest

from executors.timing import Timings, activity, collect_timings


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let time pass on the simulated clock."""
    now = [100.0]
    monkeypatch.setattr("executors.timing.perf_counter", lambda: now[0])

    def pass_by(seconds: float) -> None:
        now[0] += seconds

    return pass_by


def test_time_is_attributed_to_the_innermost_activity(work: Callable[[float], None]) -> None:
    with collect_timings() as timings:
        work(32.0)
        with activity("outer"):
            work(1.0)
            with activity("inner"):
                work(2.0)
                with activity("innermost"):
                    work(4.0)
            work(8.0)
            with activity("inner"):
                work(16.0)
        work(32.0)
    assert timings.seconds == {"outer": 9.0, "inner": 18.0, "innermost": 4.0}


def test_a_nested_activity_of_the_same_name_counts_once(work: Callable[[float], None]) -> None:
    with collect_timings() as timings, activity("training"):
        work(1.0)
        with activity("training"):
            work(2.0)
    assert timings.seconds == {"training": 3.0}


def test_a_failing_activity_is_recorded_and_ended(work: Callable[[float], None]) -> None:
    @activity("failing")
    def fail() -> None:
        work(1.0)
        with activity("inner"):
            work(2.0)
            raise ValueError("odd")

    with collect_timings() as timings, activity("outer"):
        with pytest.raises(ValueError, match="odd"):
            fail()
        work(4.0)
    assert timings.seconds == {"outer": 4.0, "failing": 1.0, "inner": 2.0}


def test_every_call_of_a_decorated_function_is_counted(work: Callable[[float], None]) -> None:
    saving = activity("saving")(work)
    for _ in range(2):
        with collect_timings() as timings:
            saving(2.0)
            saving(3.0)
        assert timings.seconds == {"saving": 5.0}


def test_timings_are_independent(work: Callable[[float], None]) -> None:
    second: list[Timings] = []

    def fail() -> None:
        with collect_timings() as timings, activity("b"):
            second.append(timings)
            work(2.0)
            raise ValueError("odd")

    with collect_timings() as first, activity("a"):
        work(1.0)
        with pytest.raises(ValueError, match="odd"):
            fail()
        with activity("c"):
            work(4.0)
    assert first.seconds == {"a": 3.0, "c": 4.0}
    assert [timings.seconds for timings in second] == [{"b": 2.0}]
