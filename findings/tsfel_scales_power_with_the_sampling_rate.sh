#!/usr/bin/env bash
# TSFEL 0.2.0 multiplies the average power of a signal by its sampling rate, and counts crossings of zero twice.
#
# Expected: `average_power` of a sine with the amplitude 1 is a half, as often as it is sampled; `zero_cross` counts how
# often a signal changes its sign.
# Observed: the sum of squares is divided by the duration, without the time between samples: the power is 25 at 50 Hz
# and 500 at 1,000 Hz. A network that was trained with the features of one sensor takes another rate for a stronger
# signal, and so it does if a sensor reads at a lower rate to save energy. A value of exactly 0, which sensors with whole
# numbers give often, counts as two crossings, and 1, 0, 0, 1 has two, although it changes its sign nowhere. There is no
# warning; the effective value by `rms` is right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet tsfel==0.2.0 numpy==2.4.6 scipy==1.17.1 pandas==3.1.1
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import tsfel

print("TSFEL", version("tsfel"))
for rate in (50, 100, 1000):
    sine = np.sin(2 * np.pi * 5 * np.arange(10 * rate) / rate)
    power, exact = tsfel.average_power(sine, rate), np.mean(sine**2)
    print(f"a sine of 5 Hz, {rate} samples a second: average power {power:.2f}, exactly {exact:.2f}")
    np.testing.assert_allclose([exact, tsfel.rms(sine) ** 2], 0.5)
    np.testing.assert_allclose(power, exact * rate, rtol=0.01)

times = np.arange(100) / 100
signals = {
    "whole numbers": (np.round(2 * np.sin(2 * np.pi * 5 * times + 0.1)), 9),
    "1, 0, 0, 1": ([1.0, 0, 0, 1], 0),
    "1, -1, 1": ([1.0, -1, 1], 2),
}
for name, (signal, changes) in signals.items():
    signs = np.sign([value for value in signal if value])
    assert (signs[1:] != signs[:-1]).sum() == changes
    crossings = tsfel.zero_cross(np.array(signal))
    print(f"{name}: {crossings} crossings of zero, {changes} changes of the sign")
    assert (crossings == changes) == (0 not in signal) and crossings >= changes
assert tsfel.zero_cross(np.array([1.0, 0, 0, 1])) == 2
PYTHON
