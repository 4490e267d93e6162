"""The results of `tuning_step`, and the equivalence of its sides."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from benchmarks.tuning import side as tuning_side
from benchmarks.tuning import step as tuning_step
from benchmarks.tuning.step import Side, figures_of


def test_ratios_are_computed_from_consecutive_bursts():
    figures = figures_of("small", Side([1.0, 4.0, 3.0], 100.0), Side([1.0, 2.0, 2.0], 400.0))
    assert figures["small_step_over_tensorflow"] == 1.5
    assert (figures["small_litert_ms"], figures["small_tensorflow_ms"]) == (3.0, 2.0)
    assert figures["small_memory_over_tensorflow"] == 0.25


def test_a_side_reports_times_and_its_own_memory():
    """The memory of the parent process does not count."""
    program = "import benchmarks.tuning.side as side; side.serve(lambda: None)"
    ballast = np.ones(50_000_000)
    done = subprocess.run(
        [sys.executable, "-c", program], input="3\n0\n", capture_output=True, text=True, check=True
    )
    seconds, memory = map(float, done.stdout.split())
    assert 0 <= seconds < 1
    assert 10 < memory < ballast.nbytes / 1e6


def test_the_litert_side_does_not_load_tensorflow():
    program = "import sys, benchmarks.tuning.step_litert; print({'tensorflow', 'keras'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.slow
def test_both_sides_train_equally():
    import tensorflow as tf

    from executors.structure import fold_batch_norm

    model = fold_batch_norm(tuning_step.resnet8())
    train = Interpreter(
        model_content=tuning_step.training_network(model, tuning_step.tuning_of("network"))
    ).get_signature_runner("train")
    batch = tuning_side.random_batch(tuning_step.BATCH)
    loss = train(
        image=batch.images,
        target_scores=batch.classes,
        teacher_scores=batch.taught,
        kd_weight=np.float32(tuning_side.KD_WEIGHT),
        learning_rate=np.float32(0),
    )["loss"]
    logits = tf.math.log(model(batch.images, training=False) + 1e-7)
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(batch.classes, logits)
    distilled = tf.nn.softmax_cross_entropy_with_logits(batch.taught, logits)
    assert loss == pytest.approx(float(tf.reduce_mean(entropy + 0.5 * distilled)), rel=1e-4)


def test_the_benchmark_is_run_by_make():
    assert "tuning.step" in (Path(tuning_step.__file__).parents[2] / "Makefile").read_text()
