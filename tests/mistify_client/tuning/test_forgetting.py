import numpy as np
import pytest

from mistify_client.examples import Examples
from mistify_client.tuning.forgetting import Knowledge, knowledge
from mistify_client.tuning.trainer import load_trainer
from mistify_client.tuning.training_loop import Score
from tests.mistify_client.tuning.devices import examples
from tests.support.paths import DATA


def test_knowledge_is_the_accuracy_of_each_class():
    trainer, keep = load_trainer(DATA / "trainable", 1), examples(5, 300)
    known = knowledge(trainer, keep)
    answers = trainer.infer(keep.inputs)["scores"].argmax(1)
    truth = keep.targets["scores"]
    assert known.score.accuracy == pytest.approx((answers == truth).mean())
    assert known.by_class == {
        label: pytest.approx((answers[truth == label] == label).mean()) for label in range(3)
    }


def test_knowledge_of_a_regression_model_is_only_its_loss():
    trainer = load_trainer(DATA / "trainable_figures", 1)
    images = np.random.default_rng(1).uniform(size=(50, 4, 4, 1)).astype(np.float32)
    keep = Examples({"image": images}, {"halves": np.zeros((50, 2), np.float32)})
    known = knowledge(trainer, keep)
    assert known.by_class == {}
    assert str(known) == f"loss {known.score.loss:.4g}"


def known(accuracy: float, loss: float = 1.0, **by_class: float) -> Knowledge:
    shares = {int(name[1:]): share for name, share in by_class.items()}
    return Knowledge(Score(accuracy, loss), 400, shares, has_accuracy=True)


def known_loss(loss: float) -> Knowledge:
    return Knowledge(Score(0.0, loss), 400, {}, has_accuracy=False)


def test_an_accuracy_of_zero_is_shown():
    trainer, keep = load_trainer(DATA / "trainable", 1), examples(5, 20)
    wrong = (trainer.infer(keep.inputs)["scores"].argmax(1) + 1) % 3
    known = knowledge(trainer, Examples(keep.inputs, {"scores": wrong}))
    assert str(known) == f"accuracy 0.0%, loss {known.score.loss:.4g}"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            known(1.0, c0=1.0, c7=1.0),
            known(0.24, c0=0.95, c7=0.02),
            "accuracy on the 400 examples to keep fell from 100.0% to 24.0%; of class 7 (100% to 2%)",
        ),
        (
            known(0.9, c0=1.0, c7=0.8),
            known(0.5, c0=0.4, c7=0.5),
            "accuracy on the 400 examples to keep fell from 90.0% to 50.0%; of classes 0 (100% to 40%) and "
            "7 (80% to 50%)",
        ),
        (known(0.9, c0=0.9), known(0.89, c0=0.89), ""),
        (known(0.9, c0=0.9), known(0.95, c0=0.95), ""),
        (known_loss(2.0), known_loss(3.0), "the loss on the examples to keep rose from 2 to 3"),
        (known_loss(2.0), known_loss(2.1), ""),
        (known(0.0, 2.0), known(0.0, 3.0), ""),
    ],
)
def test_forgetting_is_described_with_numbers(before, after, words):
    assert before.forgotten(after) == words
