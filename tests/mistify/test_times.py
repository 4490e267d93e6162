import pytest

from mistify.times import moment

MS = 1_764_455_999_999.0


@pytest.mark.parametrize(
    ("timespec", "written"),
    [("minutes", "2025-11-29 22:39 UTC"), ("seconds", "2025-11-29 22:39:59 UTC")],
)
def test_times_are_in_utc_and_not_rounded_up(timespec, written):
    assert moment(MS, timespec) == written


@pytest.mark.parametrize("unix_ms", [1e30, -1e30, float("nan"), float("inf")])
def test_a_time_out_of_range_is_a_dash(unix_ms):
    assert moment(unix_ms) == "-"
