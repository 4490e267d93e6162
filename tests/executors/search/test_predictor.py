"""What was measured says how good others are."""

import numpy as np

from executors.search import Predictor, Sample, predictor


def samples(count, seed=0):
    """A smooth function of four figures."""
    rng = np.random.default_rng(seed)
    features = rng.uniform(-3, 0, (count, 4))
    return [Sample(tuple(map(float, row)), float(quality(row))) for row in features]


def quality(row):
    return np.sin(row[0]) + 0.3 * row[1] - 0.1 * row[2] ** 2


def test_without_samples_all_are_alike_and_uncertain():
    mean, deviation = Predictor()([(0.0, 0.0), (1.0, 5.0)])
    assert mean.tolist() == [0, 0]
    assert deviation.tolist() == [1, 1]


def test_it_tells_what_it_has_not_seen():
    predictor = Predictor(samples(80))
    unseen = samples(40, seed=1)
    mean, deviation = predictor([sample.features for sample in unseen])
    expected = np.array([sample.quality for sample in unseen])
    assert np.corrcoef(mean, expected)[0, 1] > 0.98
    assert np.mean(np.abs(mean - expected) < 3 * deviation + 0.05) > 0.9


def test_it_is_less_certain_far_from_what_it_knows():
    near, far = Predictor(samples(40))([(-1.5, -1.5, -1.5, -1.5), (30.0, 30.0, 30.0, 30.0)])[1]
    assert near < far / 3


def test_more_samples_make_it_better():
    predictor = Predictor(samples(5))
    unseen = samples(40, seed=1)
    expected = np.array([sample.quality for sample in unseen])

    def error():
        return np.abs(predictor([sample.features for sample in unseen])[0] - expected).mean()

    before = error()
    predictor.learn(samples(60, seed=2))
    assert error() < before / 3


def test_the_latest_samples_are_kept(monkeypatch):
    """They are fitted after every round of every search; the oldest are of networks of long ago."""
    monkeypatch.setattr(predictor, "_SAMPLES", 20)
    everything = samples(30)
    known = Predictor(everything[:25])
    assert known.samples == everything[5:25]
    known.learn(everything[25:])
    assert known.samples == everything[10:]
    assert Predictor.loaded(known.saved()).samples == everything[10:]


def test_what_was_saved_says_the_same():
    predictor = Predictor(samples(20))
    inputs = [sample.features for sample in samples(5, seed=1)]
    again = Predictor.loaded(predictor.saved())
    np.testing.assert_allclose(again(inputs)[0], predictor(inputs)[0])
    assert Predictor.loaded(b"").samples == []
