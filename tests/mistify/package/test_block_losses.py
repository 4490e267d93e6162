"""Block losses are corrected so that their sums match the measured losses of subnets."""

import numpy as np
import pytest
from scipy.optimize import minimize

from mistify.package.block_losses import corrected_losses


def test_corrected_losses_minimize_the_penalised_error() -> None:
    rng = np.random.default_rng(0)
    alone, present, measured = rng.normal(size=4), rng.integers(2, size=(6, 4)), rng.normal(size=6)

    def penalised(losses):
        errors = measured - present @ losses
        return errors @ errors + 0.3 * (losses - alone) @ (losses - alone)

    best = minimize(penalised, alone).x
    assert corrected_losses(alone, present, measured) == pytest.approx(best, abs=1e-4)


def test_losses_do_not_change_without_subnets() -> None:
    assert corrected_losses([0.25, -0.5], np.zeros((0, 2)), []).tolist() == [0.25, -0.5]
