"""Private tuning sessions with a real coordinator: only weights trained on noisy data leave the device."""

import shutil

import numpy as np
import pytest

import mistify_client
from mistify.errors import ErrorCode, MistifyError
from mistify.package.weights import write_weights
from mistify_client.tuning import Examples, Privacy
from mistify_client.tuning.examples import split
from mistify_client.tuning.training_loop import TrainingState, fit, score_of
from mistify_client.tuning.tuner import VALIDATION
from tests.mistify_client.tuning.conftest import Device
from tests.mistify_client.tuning.devices import SETTINGS

NOISY = {"lower": 0, "upper": 1, "unit": "value", "epsilon": 4, "budget": 5}


def test_private_devices_publish_weights_trained_only_on_noisy_data(address, device, store):
    own = device(0)
    privacy = Privacy.model_validate(NOISY)
    first = own.tune(address, privacy=privacy)
    assert first.version is not None
    (published,) = (store / "weights").glob("??/*.weights")
    kept = published.read_bytes()
    assert kept != write_weights(mistify_client.load_trainer(first.version).weights())
    (noisy,) = own.state.glob("noisy-*.npz")
    drawn = noisy.read_bytes()
    own.tune(address, privacy=privacy)  # same data, no further epsilon, from the ported weights
    assert noisy.read_bytes() == drawn
    (published,) = (store / "weights").glob("??/*.weights")
    assert published.read_bytes() == kept


def test_private_devices_start_published_weights_from_the_ported_ones(address, device, store):
    """Starting from weights tuned on the true data would leak information about it."""
    own = device(0)
    own.tune(address, privacy=Privacy.model_validate(NOISY))
    (noisy,), (published,) = own.state.glob("noisy-*.npz"), (store / "weights").glob("??/*.weights")
    trainer = mistify_client.load_trainer(own.package)
    with np.load(noisy) as arrays:
        drawn = Examples({"image": arrays["x"]}, {"scores": arrays["y"]})
    data = split(drawn, VALIDATION, trainer.training.batch_size)
    began = score_of(trainer, data.held_out)
    start = TrainingState.initial(began, trainer.weights(), began, len(data.validation))
    state = fit(trainer, data, SETTINGS, start, after_pass=lambda *_: None)
    assert published.read_bytes() == write_weights(state.best_weights)


def test_privacy_with_integer_inputs_is_refused_before_training(address, data, tmp_path):
    """Noise can only be added to floats."""
    package = shutil.copytree(data / "trainable_tokens", tmp_path / "tokens")
    tokens = np.random.default_rng(0).integers(0, 10, (60, 4)).astype(np.int32)
    own = Device(package, Examples({"tokens": tokens}, {"scores": (tokens[:, 0] < 5).astype(np.int64)}), 0)
    privacy = Privacy.model_validate(NOISY)
    with pytest.raises(MistifyError, match=r"nothing was started\n.*int32.*float32") as caught:
        own.tune(address, privacy=privacy)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert not list(own.state.glob("*"))
    assert own.tune(privacy=privacy).version is not None


def test_with_an_exhausted_ledger_nothing_is_published(address, device, store):
    own, other = device(0), device(2)
    privacy = Privacy.model_validate(NOISY | {"ledger": own.package.parent / "ledger"})
    own.tune(address, privacy=privacy)
    before = sorted((store / "weights").glob("??/*.weights"))
    outcome = other.tune(address, privacy=privacy)
    assert "needs an epsilon of 4; 1 is left" in outcome.notes[0]
    assert outcome.version is not None
    assert sorted((store / "weights").glob("??/*.weights")) == before
