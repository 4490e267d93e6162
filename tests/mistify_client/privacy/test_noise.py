from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from mistify.errors import ErrorCode, MistifyError
from mistify_client.privacy.ledger import PrivacyLedger
from mistify_client.privacy.noise import LEVELS, Mechanism, Unit, _on_grid, privatize, randomized_response

VALUES = Mechanism(0.0, 1.0, Unit.VALUE, Fraction(2))
EXAMPLES = Mechanism(-1.0, 1.0, Unit.EXAMPLE, Fraction(2), label_epsilon=Fraction(1), radius=0.5)


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger(tmp_path / "ledger", Fraction(5))


def seeded(seed):
    rng = np.random.default_rng(seed)
    return {"random_bytes": rng.bytes, "randbelow": lambda below: int(rng.integers(below))}


def test_noise_on_values_is_laplacian_with_the_scale_of_range_over_epsilon(ledger):
    inputs = np.full((100, 8, 8), 0.25)
    noisy, labels = privatize(inputs, np.zeros(100, int), VALUES, ledger, classes=3, **seeded(0))
    assert noisy.shape == inputs.shape
    assert noisy.dtype == np.float32
    assert stats.kstest(noisy.ravel(), stats.laplace(0.25, 0.5).cdf).pvalue > 1e-3
    assert (labels == 0).all()
    assert ledger.spent() == 2


def test_noise_on_examples_depends_on_their_radius(ledger):
    """Two examples differ by at most twice the radius, whatever the number of values."""
    inputs = np.zeros((60, 50))
    noisy, _ = privatize(inputs, np.zeros(60, int), EXAMPLES, ledger, classes=3, **seeded(1))
    assert stats.kstest(noisy.ravel(), stats.laplace(0, 2 * 0.5 / 2).cdf).pvalue > 1e-3
    assert ledger.spent() == 3


def test_values_are_clipped_before_noise_is_added():
    steps, sensitivity = _on_grid(np.array([[-5.0, 0.0, 0.5, 1.0, 7.0]]), VALUES)
    assert steps.tolist() == [[-LEVELS // 2, -LEVELS // 2, 0, LEVELS // 2, LEVELS // 2]]
    assert sensitivity == LEVELS == steps.max() - steps.min()


@pytest.mark.parametrize("radius", [None, 0.01, 0.5, 100.0])
def test_no_two_examples_are_further_apart_than_the_sensitivity(radius):
    mechanism = Mechanism(-1.0, 1.0, Unit.EXAMPLE, Fraction(1), radius=radius)
    rng = np.random.default_rng(4)
    values = np.concatenate([rng.normal(size=(50, 7)), np.ones((1, 7)), -np.ones((1, 7)), np.eye(7)])
    steps, sensitivity = _on_grid(values, mechanism)
    assert np.abs(steps[:, None] - steps[None]).sum(axis=2).max() <= sensitivity
    assert np.abs(steps).sum(axis=1).max() > 0.4 * sensitivity


def test_examples_within_the_radius_are_not_changed():
    steps, _ = _on_grid(np.array([[0.1, -0.2]]), EXAMPLES)
    assert steps * EXAMPLES.step == pytest.approx(np.array([[0.1, -0.2]]), abs=EXAMPLES.step)


def test_no_noise_is_drawn_when_the_budget_is_spent(ledger):
    ledger.spend(Fraction(4), "earlier")

    def never(_: int) -> bytes:
        raise AssertionError("noise was drawn")

    with pytest.raises(MistifyError) as caught:
        privatize(np.zeros((2, 2)), np.zeros(2, int), VALUES, ledger, classes=2, random_bytes=never)
    assert caught.value.code is ErrorCode.PRIVACY_BUDGET
    assert ledger.spent() == 4


def test_the_budget_is_debited_before_noise_is_drawn(ledger):
    seen = []

    def noting(count: int) -> bytes:
        seen.append(ledger.spent())
        return bytes(count)

    privatize(np.zeros((2, 2)), np.zeros(2, int), VALUES, ledger, classes=2, random_bytes=noting)
    assert set(seen) == {2}


def test_labels_follow_the_probabilities_of_randomized_response():
    classes, epsilon, count = 4, Fraction(3, 2), 20_000
    labels = np.full(count, 2)
    noisy = randomized_response(labels, classes, epsilon, seeded(3)["randbelow"])
    weights = np.where(np.arange(classes) == 2, np.exp(1.5), 1.0)
    observed = np.bincount(noisy, minlength=classes)
    assert stats.chisquare(observed, count * weights / weights.sum()).pvalue > 1e-3


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (np.array([[np.nan]]), np.array([0])),
        (np.array([[np.inf]]), np.array([0])),
        (np.array([[0.0]]), np.array([2])),
        (np.array([[0.0]]), np.array([-1])),
    ],
)
def test_unsuitable_data_costs_no_budget(ledger, inputs, labels):
    with pytest.raises(MistifyError) as caught:
        privatize(inputs, labels, VALUES, ledger, classes=2)
    assert caught.value.code is ErrorCode.INVALID_DATASET
    assert ledger.spent() == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"lower": 1.0},
        {"upper": float("inf")},
        {"epsilon": Fraction(0)},
        {"label_epsilon": Fraction(-1)},
        {"radius": 1.0},
        {"unit": Unit.EXAMPLE, "radius": 0.0},
    ],
)
def test_mechanisms_without_protection_are_refused(changes):
    arguments = {"lower": 0.0, "upper": 1.0, "unit": Unit.VALUE, "epsilon": Fraction(1)}
    with pytest.raises(ValueError, match="got the"):
        Mechanism(**{**arguments, **changes})
