"""Noisy data of private devices: debited once, and drawn again only for other data."""

from fractions import Fraction

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.examples import Examples
from mistify_client.privacy.ledger import PrivacyLedger
from mistify_client.tuning.release import Privacy, noisy_examples
from tests.mistify_client.tuning.devices import examples
from tests.support.disks import files_limited_to

PRIVACY = Privacy(lower=0, upper=1, unit="value", epsilon=2, label_epsilon=0.5, budget=6)


@pytest.fixture
def trainer(device):
    return device(0).trainer()


def spent(directory):
    return PrivacyLedger(directory / "ledger", Fraction(6)).spent()


def test_noisy_data_is_drawn_once(trainer, tmp_path):
    true = examples(1, 2000)
    noisy = noisy_examples(true, trainer, PRIVACY, tmp_path)
    assert spent(tmp_path) == Fraction("2.5")
    noise = noisy.inputs["image"] - true.inputs["image"]
    assert noise.std() == pytest.approx(np.sqrt(2) / 2, rel=0.05)
    assert 0 < np.mean(noisy.targets["scores"] != true.targets["scores"]) < 0.7
    again = noisy_examples(true, trainer, PRIVACY, tmp_path)
    np.testing.assert_array_equal(again.inputs["image"], noisy.inputs["image"])
    assert spent(tmp_path) == Fraction("2.5")


def test_other_data_or_other_noise_is_debited_again(trainer, tmp_path):
    noisy_examples(examples(1, 50), trainer, PRIVACY, tmp_path)
    noisy_examples(examples(2, 50), trainer, PRIVACY, tmp_path)
    assert spent(tmp_path) == 5
    with pytest.raises(MistifyError) as caught:
        noisy_examples(examples(1, 50), trainer, PRIVACY.model_copy(update={"epsilon": 1}), tmp_path)
    assert caught.value.code is ErrorCode.PRIVACY_BUDGET
    assert len(list(tmp_path.glob("noisy-*.npz"))) == 2


def test_a_crash_between_debit_and_data_debits_again(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(np, "savez", lambda *args, **kwargs: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        noisy_examples(examples(1, 50), trainer, PRIVACY, tmp_path)
    monkeypatch.undo()
    assert spent(tmp_path) == Fraction("2.5")
    noisy_examples(examples(1, 50), trainer, PRIVACY, tmp_path)
    assert spent(tmp_path) == 5


def test_a_failed_write_is_reported_and_leaves_no_files(trainer, tmp_path):
    reported = r"cannot be written \(File too large\); free space"
    with pytest.raises(MistifyError, match=reported) as caught, files_limited_to(1000):
        noisy_examples(examples(1, 50), trainer, PRIVACY, tmp_path)
    assert caught.value.code is ErrorCode.UNAVAILABLE
    assert [path.name for path in tmp_path.glob("*.*")] == []


def test_outputs_without_one_class_per_example_are_refused(trainer, tmp_path):
    some = examples(1, 20)
    positions = Examples(some.inputs, {"scores": np.zeros((20, 4), np.int64)})
    with pytest.raises(MistifyError, match="one class for each example"):
        noisy_examples(positions, trainer, PRIVACY, tmp_path)
    assert not (tmp_path / "ledger").exists()
