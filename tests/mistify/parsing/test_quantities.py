"""Quantities are parsed with their units, and survive a round trip exactly."""

import json
import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mistify.parsing.quantities import (
    COUNT,
    Quantity,
    format_bandwidth,
    format_bytes,
    format_compute_power,
    format_count,
    format_energy,
    format_share,
    format_time,
    parse_bandwidth,
    parse_bytes,
    parse_compute_power,
    parse_figure,
    parse_time,
)

WITH_RELATIVE = [(parse_time, format_time), (COUNT.parse, format_count), (parse_bytes, format_bytes)]
ABSOLUTE = [(parse_compute_power, format_compute_power), (parse_bandwidth, format_bandwidth)]
POSITIVE = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
SCALE = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_time, "30ms", 30.0),
        (parse_time, "0.2s", 200.0),
        (parse_time, " 250 us ", 0.25),
        (parse_time, "2min", 120_000.0),
        (parse_time, 30, 30.0),
        (parse_time, "1.5", 1.5),
        (COUNT.parse, "5G", 5e9),
        (COUNT.parse, "20M", 2e7),
        (COUNT.parse, "12.5k", 12_500.0),
        (COUNT.parse, 78_666, 78_666.0),
        (COUNT.parse, "1e6", 1e6),
        (parse_bytes, "0.5GB", 5e8),
        (parse_bytes, "0.5GiB", 2.0**29),
        (parse_bytes, 4096, 4096.0),
    ],
)
def test_limits_are_parsed_with_their_units(parse, text, value):
    assert parse(text) == Quantity(value)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_figure, "0.80", 0.8),
        (parse_figure, "80%", 0.8),
        (parse_figure, 1, 1.0),
        (parse_compute_power, "10GFLOP/s", 10.0),
        (parse_compute_power, "1.5TFLOP/s", 1500.0),
        (parse_compute_power, 0.25, 0.25),
        (parse_bandwidth, "8.5GB/s", 8.5),
        (parse_bandwidth, "900 MB/s", 0.9),
    ],
)
def test_numbers_are_parsed_with_their_units(parse, text, value):
    assert parse(text) == value


def test_relative_limits_are_multiples_of_the_source():
    for parse, _ in WITH_RELATIVE:
        assert parse("0.5x") == Quantity(0.5, relative=True)
        assert parse("0.5x").resolve(12.5e6) == 6.25e6
        assert parse("1e305x").resolve(12.5e6) == sys.float_info.max
        assert parse("1e-305x").resolve(1e-9) > 0
        assert parse(4).resolve(12.5e6) == 4
    for parse in (parse_figure, parse_compute_power, parse_bandwidth):
        with pytest.raises(ValueError, match="unit 'x' is unknown"):
            parse("0.5x")


@given(POSITIVE, st.booleans())
def test_limits_round_trip(value, relative):
    for parse, write in WITH_RELATIVE:
        assert parse(write(Quantity(value, relative))) == Quantity(value, relative)


@given(POSITIVE)
def test_numbers_round_trip(value):
    for parse, write in ABSOLUTE:
        assert parse(write(value)) == value


@given(st.floats(0, 1, exclude_min=True))
def test_shares_round_trip(value):
    assert parse_figure(format_share(value)) == value


@given(st.floats(1e-3, 1e15), st.integers(1, 6))
def test_numbers_are_rounded_for_tables(value, digits):
    text = format_count(value, digits)

    assert COUNT.parse(text).value == pytest.approx(value, rel=0.5001 * 10.0 ** (1 - digits))
    assert len(text.strip("KMGT").replace(".", "").strip("0")) <= digits


@given(st.floats(1e-6, 1e6), st.sampled_from(sorted(SCALE)))
def test_units_scale_the_number(number, unit):
    assert COUNT.parse(f"{number!r}{unit}").value == pytest.approx(number * SCALE[unit], rel=1e-15)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (format_count(12_501_632, 3), "12.5M"),
        (format_count(78_666), "78.666K"),
        (format_count(999_999, 3), "1M"),
        (format_count(200), "200"),
        (format_bytes(314_664, 4), "314.7KB"),
        (format_bytes(0.0), "0B"),
        (format_energy(0.00123, 2), "1.2uJ"),
        (format_time(0.25), "250us"),
        (format_time(90_000.0), "90s"),
        (format_share(0.81234, 3), "81.2%"),
        (format_compute_power(1500), "1.5TFLOP/s"),
        (format_bandwidth(8.5), "8.5GB/s"),
        (format_count(Quantity(0.5, relative=True)), "0.5x"),
    ],
)
def test_quantities_are_formatted_for_tables(written, expected):
    assert written == expected


@pytest.mark.parametrize(
    "given_value", ["5G", "-5ms", "0ms", -1, 0, math.nan, math.inf, "1e999ms", "1e-999", 10**400]
)
def test_invalid_times_are_refused(given_value):
    with pytest.raises(ValueError, match="a time such as"):
        parse_time(given_value)


@pytest.mark.parametrize(
    "given_value", [True, None, [], {}, "", "ms", "3 0ms", "30ms30", "0x1F", "1,5ms", "9" * 500]
)
def test_invalid_quantities_are_refused(given_value):
    for parse in (parse_time, COUNT.parse, parse_bytes, parse_figure, parse_compute_power, parse_bandwidth):
        with pytest.raises(ValueError, match="expected a"):
            parse(given_value)


def test_messages_state_the_value_the_expected_one_and_a_fix():
    with pytest.raises(
        ValueError, match=r"unit 'gb' is unknown, use B, KB, kB, MB, GB, TB, KiB, MiB, GiB, x"
    ) as caught:
        parse_bytes("5gb")
    assert json.dumps("5gb") in str(caught.value)
    assert "a number of bytes" in str(caught.value)
