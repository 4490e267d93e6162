#!/usr/bin/env bash
# spafe 0.3.3 stretches its mel filters over the whole spectrum, whatever `low_freq` and `high_freq` say.
#
# Expected: the filters of `mel_filter_banks` and `linear_filter_banks`, and thus of `mfcc`, `lfcc`, `mel_spectrogram`
# and the like, lie between `low_freq` and `high_freq`, their "lowest" and "highest band edge". The filters of
# `bark_filter_banks` do.
# Observed: the bins of the spectrum are taken for frequencies from `low_freq` to `high_freq` instead of 0 to half of
# the sampling rate. With 16,000 samples a second and a band from 300 to 3,400 Hz, as on the telephone, the filter that
# is meant for 2,650 Hz is at 6,062 Hz. A hum of 100 Hz and hissing at 7,000 Hz, which the band is to keep out, reach
# the features, and 500 and 100 Hz are in the same filter. The frequencies that are returned with the filters are those
# that were meant. There is no warning; without limits, the filters are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet spafe==0.3.3 numpy==2.4.6 scipy==1.17.1 matplotlib==3.11.2
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import numpy as np
from spafe.fbanks.bark_fbanks import bark_filter_banks
from spafe.fbanks.linear_fbanks import linear_filter_banks
from spafe.fbanks.mel_fbanks import mel_filter_banks
from spafe.features.mfcc import mel_spectrogram

print("spafe", version("spafe"))
RATE, SIZE, FILTERS = 16000, 512, 6


def mel(frequencies):
    return 1127 * np.log1p(np.asarray(frequencies) / 700)


def peaks(filters):
    """Return the frequencies at which the filters are largest, in Hz."""
    return filters.argmax(1) * RATE / SIZE


for low, high in ((0, 8000), (300, 3400), (300, 1000)):
    band = {"nfilts": FILTERS, "nfft": SIZE, "fs": RATE, "low_freq": low, "high_freq": high}
    meant = {
        "mel": 700 * np.expm1(np.linspace(*mel([low, high]), FILTERS + 2)[1:-1] / 1127),
        "linear": np.linspace(low, high, FILTERS + 2)[1:-1],
    }
    seen = {"mel": peaks(mel_filter_banks(**band)[0]), "linear": peaks(linear_filter_banks(**band)[0])}
    for scale, exact in meant.items():
        print(f"{low} to {high} Hz, {scale}: peaks {seen[scale].round().tolist()}, exactly {exact.round().tolist()}")
        stretched = (exact - low) / (high - low) * RATE / 2
        np.testing.assert_allclose(seen[scale], stretched, atol=RATE / SIZE)
    assert np.allclose(seen["mel"], meant["mel"], atol=RATE / SIZE) == ((low, high) == (0, 8000))
    assert peaks(bark_filter_banks(**band)[0]).max() < high

times = np.arange(RATE) / RATE
strongest = {}
for frequency in (100, 500, 7000):
    tone = np.sin(2 * np.pi * frequency * times)
    settings = {"fs": RATE, "nfilts": FILTERS, "nfft": SIZE, "pre_emph": False, "low_freq": 300, "high_freq": 3400}
    energies = mel_spectrogram(tone, **settings)[0].mean(0)
    strongest[frequency] = energies.argmax(), energies.max()
    print(f"{frequency} Hz in the band from 300 to 3400 Hz: {energies.round(2).tolist()}")
assert strongest[100][0] == strongest[500][0] == 0 and strongest[100][1] > 1
assert strongest[7000][0] == FILTERS - 1 and strongest[7000][1] > 1
PYTHON
