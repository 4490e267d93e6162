import numpy as np
import pytest
from scipy.fft import dctn

from executors.synthesis.spectral_inputs import SpectralInputs


def noise(*shape):
    return np.random.default_rng(0).normal(size=(200, *shape)).astype(np.float32)


@pytest.mark.parametrize("shape", [(), (5,), (9, 2), (6, 8, 3), (600, 1), (4, 3, 5, 2)])
def test_amplitudes_describe_cosines_along_all_axes_except_the_last(shape):
    amplitudes = noise(*shape)
    sums = SpectralInputs(shape)(amplitudes).numpy()
    axes = range(1, len(shape))
    seen = dctn(sums, axes=axes, norm="ortho") if axes else sums
    np.testing.assert_allclose(seen, amplitudes, atol=1e-4)


def test_amplitudes_fall_with_frequency_at_the_same_variance():
    inputs = SpectralInputs((16, 16, 2))
    inputs.configure(1.0, 1.0, 0.0)
    seen = dctn(inputs(noise(16, 16, 2)).numpy(), axes=(1, 2), norm="ortho").std(axis=(0, 3))
    for near, far in (((0, 1), (0, 4)), ((2, 0), (8, 0)), ((2, 2), (8, 8))):
        assert seen[near] / seen[far] == pytest.approx(4, rel=0.2)
    assert np.sqrt((seen**2).mean()) == pytest.approx(1, rel=0.1)


def test_scale_and_mean_apply_to_the_sums():
    inputs = SpectralInputs((16, 16, 2))
    inputs.configure(0.5, 30.0, 2.0)
    sums = inputs(noise(16, 16, 2)).numpy()
    assert sums.std() == pytest.approx(30, rel=0.1)
    assert sums.mean() == pytest.approx(60, rel=0.1)
