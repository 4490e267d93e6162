from typing import Any

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Kernel

from mistify.config.data.metric import Metric
from mistify.jobs.plan import Estimate
from mistify_server.planning.forecast import kernel
from mistify_server.planning.forecast.history import ForecastHistory
from mistify_server.store.edges import EdgeFeatures, EdgeRecord, OutputRecord
from tests.mistify_server.planning.forecast.histories import PROFILES, case, seen


def lost(known: ForecastHistory, requested: EdgeFeatures) -> Estimate:
    (estimate,) = known.lost([requested])
    return estimate


def test_without_records_predictions_are_those_of_benchmarks_with_a_wide_margin() -> None:
    """ResNet-8, depthwise and SNIPS: relative loss of accuracy at a half and at a quarter."""
    known = ForecastHistory([], PROFILES)
    for halvings, figures in {1.0: (0.06, 0.011, 0.026), 2.0: (0.111, 0.013, 0.026)}.items():
        estimate = lost(known, case(halvings, steps=900))
        assert all(estimate.holds(figure) for figure in figures)
    assert lost(known, case(0.0)).mean == 0.0


def test_predicted_losses_grow_with_distance_and_shrink_with_steps() -> None:
    known = ForecastHistory([], PROFILES)
    down = [lost(known, case(halvings)) for halvings in (0.0, 0.5, 1.0, 3.0)]
    assert [estimate.mean for estimate in down] == sorted(estimate.mean for estimate in down)
    assert [estimate.deviation for estimate in down] == sorted(estimate.deviation for estimate in down)
    assert lost(known, case(steps=2000)).mean < lost(known, case(steps=200)).mean


def test_records_of_the_same_model_count_most_followed_by_those_of_its_kind() -> None:
    def predicted(subject: str) -> Estimate:
        records = [seen(case(h, subject="own"), 0.09 * h) for h in (0.5, 1.0, 1.5, 2.0)]
        return lost(ForecastHistory(records, PROFILES), case(1.2, subject=subject))

    own, like, none = predicted("own"), predicted("another"), lost(ForecastHistory([], PROFILES), case(1.2))
    assert own.mean == pytest.approx(0.108, abs=0.006)
    assert none.mean < like.mean < own.mean
    assert own.deviation < like.deviation < none.deviation


def poor_source_records(halvings: float) -> EdgeRecord:
    """Return records of a barely trained source, where smaller networks are twice as good."""
    return seen(case(halvings, subject="poor"), -1.0 + 0.05 * halvings)


def test_gains_of_a_poor_source_are_not_predicted_for_other_sources() -> None:
    good = [seen(case(h, subject="good"), 0.05 * h) for h in (0.5, 1.0, 1.5, 2.0)]
    gained = [poor_source_records(h) for h in (0.5, 1.0, 2.0, 3.0)]
    for records in ([], good):
        alone, beside = (
            ForecastHistory(seen_edges, PROFILES) for seen_edges in (records, [*gained, *records])
        )
        for subject in ("new", "good"):
            expected, estimate = (lost(known, case(1.2, subject=subject)) for known in (alone, beside))
            assert estimate.mean == pytest.approx(expected.mean)
            assert estimate.deviation == pytest.approx(expected.deviation)
            assert beside.evidence(subject, "convolutional") == alone.evidence(subject, "convolutional")


def test_gains_of_a_poor_source_are_predicted_for_itself() -> None:
    known = ForecastHistory([poor_source_records(h) for h in (0.5, 1.0, 2.0, 3.0)], PROFILES)
    assert lost(known, case(1.2, subject="poor")).holds(-0.94)
    assert known.evidence("poor", "convolutional") == "based on 4 edges of this model and data"


def test_a_slightly_better_network_does_not_indicate_a_poor_source() -> None:
    """Neither does a better network that is wider."""
    records = [seen(case(1.0, subject="good"), -0.01), seen(case(-1.0, subject="good"), -0.1)]
    known, none = ForecastHistory(records, PROFILES), ForecastHistory([], PROFILES)
    assert lost(known, case(1.2, subject="new")).mean < lost(none, case(1.2)).mean


def test_predictions_are_those_of_a_gaussian_process() -> None:
    """The reference is scikit-learn's with the same covariance."""
    rng = np.random.default_rng(3)
    cases = [
        case(float(h), subject="ab"[n % 2], algorithm=("morphnet", "chamnet")[n % 3 == 0], steps=int(s))
        for n, (h, s) in enumerate(zip(rng.uniform(0, 3, 12), rng.uniform(50, 3000, 12), strict=True))
    ]
    known, requested = cases[:8], cases[8:]
    usual = ForecastHistory([], PROFILES)
    targets = np.array([estimate.mean for estimate in usual.lost(known)]) + rng.normal(0, 0.005, 8)

    def figures(of: list[EdgeFeatures]) -> Any:
        return usual._features(of)

    class Ours(Kernel):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        def __call__(self, left: object, right: object = None, eval_gradient: bool = False) -> object:
            one = [cases[int(place)] for (place,) in left]  # type: ignore[attr-defined]
            other = one if right is None else [cases[int(place)] for (place,) in right]  # type: ignore[attr-defined]
            return kernel.covariance(figures(one), figures(other))

        def diag(self, value: object) -> object:
            return np.diag(self(value))  # type: ignore[call-overload]

        def is_stationary(self) -> bool:
            return False

    residuals = targets - [estimate.mean for estimate in usual.lost(known)]
    process = GaussianProcessRegressor(Ours(), alpha=kernel.noise(figures(known)), optimizer=None)
    process.fit(np.arange(8)[:, None], residuals)
    mean, deviation = process.predict(np.arange(8, 12)[:, None], return_std=True)
    records = [seen(one, float(target)) for one, target in zip(known, targets, strict=True)]
    ours = ForecastHistory(records, PROFILES).lost(requested)
    expected = mean + [estimate.mean for estimate in usual.lost(requested)]
    np.testing.assert_allclose([estimate.mean for estimate in ours], expected, atol=1e-9)
    spread = np.sqrt(deviation**2 + kernel.noise(figures(requested)))
    np.testing.assert_allclose([estimate.deviation for estimate in ours], spread, rtol=1e-6)


def test_predictions_are_at_least_as_uncertain_as_in_cross_validation() -> None:
    def margin(losses: list[float]) -> float:
        records = [seen(case(1.0 + 0.1 * n), loss) for n, loss in enumerate(losses)]
        return lost(ForecastHistory(records, PROFILES), case(1.2)).margin

    scattered = [0.02, 0.14, 0.01, 0.15, 0.03, 0.13]
    assert margin(scattered) > 3 * margin([0.06] * 6)
    assert margin(scattered) > 2 * np.std(scattered)


def test_the_accuracy_of_the_source_is_taken_from_the_last_job_with_as_many_steps() -> None:
    records = [seen(case(), 0.1, source=0.7), seen(case(), 0.1, source=0.8)]
    known = ForecastHistory(records, PROFILES)
    assert known.source("own", 200) == 0.8
    assert known.source("own", 100) is None
    assert known.source("another", 200) is None


def test_forecasts_of_an_output_use_its_own_scores_in_the_records_of_its_model() -> None:
    kind = OutputRecord(output="kind", metric=Metric.ACCURACY, source=0.35, lost=0.4)
    own = [seen(case(1.0 + 0.1 * n), 0.02).model_copy(update={"outputs": (kind,)}) for n in range(6)]
    others = [seen(case(subject="another"), 0.02).model_copy(update={"outputs": (kind,)})]
    known = ForecastHistory([*own, *others], PROFILES)
    of_kind = known.of_output("own", "kind", Metric.ACCURACY)
    assert of_kind.source("own", 200) == 0.35
    assert lost(of_kind, case(1.2)).mean == pytest.approx(0.4, abs=0.05)
    assert lost(known, case(1.2)).mean == pytest.approx(0.02, abs=0.02)
    assert known.of_output("own", "kind", Metric.F1) is known
    assert known.of_output("another model", "kind", Metric.ACCURACY) is known


def test_speed_is_estimated_from_edges_of_the_same_model() -> None:
    """850 steps at the source's size, 150 of them for the overhead of an edge, take 17 s."""
    whole = case(0.0)
    records = [seen(whole, 0.0, seconds=17.0), seen(case(0.0, subject="another"), 0.0, seconds=1000.0)]
    known = ForecastHistory(records, PROFILES)
    assert known.step_seconds("own") == pytest.approx(0.02)
    assert known.step_seconds("new") is None
    assert case(3.0).work < whole.work


def test_predictions_state_their_evidence() -> None:
    records = [seen(case(), 0.1), seen(case(), 0.1)]
    assert ForecastHistory(records, PROFILES).evidence("own", "convolutional") == (
        "based on 2 edges of this model and data"
    )
    assert "1 edge of other convolutional" in ForecastHistory(records[:1], PROFILES).evidence(
        "new", "convolutional"
    )
    assert "benchmarks" in ForecastHistory(records, PROFILES).evidence("new", "transformer")
