#!/usr/bin/env bash
# speechpy 2.4 places its mel filters at half of their frequencies, so that features leave out the upper half of sounds.
#
# Expected: the filters of `mfe`, `lmfe` and `mfcc` lie evenly on the mel scale between `low_frequency` and
# `high_frequency`, by default 300 Hz and half of the sampling rate, and the first sample of `preemphasis` depends on no
# other, as there is none before it.
# Observed: with 16,000 samples a second, filters from 300 to 8,000 Hz lie between 150 and 4,000 Hz: frequencies are
# taken for places in a spectrum of n // 2 + 1 numbers as if it had n. A tone of 6,000 Hz gives no energy in any filter,
# and a filter that is meant for 2,000 Hz measures 1,000 Hz. A network that is trained with these features hears no
# sibilants, and another implementation on the device feeds it other numbers. `preemphasis` subtracts the last sample
# from the first one. There is no warning.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet speechpy==2.4 numpy==2.4.6 scipy==1.17.1
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
import speechpy

print("speechpy", version("speechpy"))
RATE, SIZE, FILTERS, LOWEST = 16000, 512, 26, 300
ends = 1127 * np.log1p(np.array([LOWEST, RATE / 2]) / 700)
exact = 700 * np.expm1(np.linspace(*ends, FILTERS + 2)[1:-1] / 1127)
filters = speechpy.feature.filterbanks(FILTERS, SIZE // 2 + 1, RATE)
centres = filters.argmax(1) * RATE / SIZE
print(f"centres of the filters: {centres[[0, -1]].round()} Hz, exactly {exact[[0, -1]].round()} Hz")
np.testing.assert_allclose(centres, exact / 2, atol=RATE / SIZE)
assert (filters[:, SIZE // 4 + 2 :] == 0).all()

times = np.arange(RATE) / RATE
energies = {}
for frequency in (1000, 2000, 3000, 6000):
    tone = np.sin(2 * np.pi * frequency * times)
    energy = speechpy.feature.mfe(tone, RATE, 0.032, 0.01, num_filters=FILTERS, fft_length=SIZE)[0][10]
    energies[frequency] = energy.max()
    print(f"{frequency} Hz: most energy {energy.max():.1e}, in the filter for {exact[energy.argmax()]:.0f} Hz")
    if frequency < 4000:
        assert abs(exact[energy.argmax()] / frequency - 2) < 0.25
assert energies[6000] < 1e-3 * min(energies[frequency] for frequency in (1000, 2000, 3000))

samples = speechpy.processing.preemphasis(np.array([1.0, 2, 3, 4]), cof=0.5)
print(f"preemphasis of 1, 2, 3, 4 by a half: {samples.tolist()}")
assert samples.tolist() == [1 - 0.5 * 4, 2 - 0.5 * 1, 3 - 0.5 * 2, 4 - 0.5 * 3]
PYTHON
