"""Predicting the quality of networks from measured ones."""

import numpy as np

from executors.search import Predictor, Sample, predictor


def samples(count, seed=0):
    """Return samples of a smooth function of four numbers."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-3, 0, (count, 4))
    return [Sample(tuple(map(float, row)), float(quality(row))) for row in features]


def quality(row):
    return np.sin(row[0]) + 0.3 * row[1] - 0.1 * row[2] ** 2


def test_without_samples_all_predictions_are_equal_and_uncertain():
    mean, deviation = Predictor()([(0.0, 0.0), (1.0, 5.0)])
    assert mean.tolist() == [0, 0]
    assert deviation.tolist() == [1, 1]


def test_unseen_points_are_predicted():
    predictor = Predictor(samples(80))
    unseen = samples(40, seed=1)
    mean, deviation = predictor([sample.features for sample in unseen])
    expected = np.array([sample.quality for sample in unseen])
    assert np.corrcoef(mean, expected)[0, 1] > 0.98
    assert np.mean(np.abs(mean - expected) < 3 * deviation + 0.05) > 0.9


def test_predictions_far_from_samples_are_less_certain():
    near, far = Predictor(samples(40))([(-1.5, -1.5, -1.5, -1.5), (30.0, 30.0, 30.0, 30.0)])[1]
    assert near < far / 3


def test_more_samples_improve_predictions():
    predictor = Predictor(samples(5))
    unseen = samples(40, seed=1)
    expected = np.array([sample.quality for sample in unseen])

    def error():
        return np.abs(predictor([sample.features for sample in unseen])[0] - expected).mean()

    before = error()
    predictor.learn(samples(60, seed=2))
    assert error() < before / 3


def test_the_most_recent_samples_are_kept(monkeypatch):
    """Every round of a search fits them; the oldest samples come from outdated networks."""
    monkeypatch.setattr(predictor, "_SAMPLES", 20)
    everything = samples(30)
    known = Predictor(everything[:25])
    assert known.samples == everything[5:25]
    known.learn(everything[25:])
    assert known.samples == everything[10:]
    assert Predictor.loaded(known.saved()).samples == everything[10:]


def test_a_saved_predictor_makes_the_same_predictions():
    predictor = Predictor(samples(20))
    inputs = [sample.features for sample in samples(5, seed=1)]
    again = Predictor.loaded(predictor.saved())
    np.testing.assert_allclose(again(inputs)[0], predictor(inputs)[0])
    assert Predictor.loaded(b"").samples == []
