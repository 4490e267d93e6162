"""The benchmark of the whole loop: its figures, and the policies that it drives."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.device.context_driving import Chosen, Observations, Timed
from benchmarks.device.context_loop import Subject, _tau
from mistify.config.data.metric import Metric
from mistify.package.option_kinds import OptionKind
from mistify.parsing.validation import Settings
from mistify_client.assembly.engine import Engine
from mistify_client.assembly.executions import Execution
from mistify_client.assembly.pool import PoolEntry
from mistify_client.monitor.policies.base import Situation, make_policy
from mistify_client.monitor.sensing.sensors import SensorReading
from mistify_client.monitor.state.targets import Targets
from mistify_client.runtime.options import Option, OptionCosts, OptionScore
from mistify_client.runtime.statistics import INFERENCE
from tests.mistify_client.pools import SUBNETS, make_block_package, write_pool

MAPPED = Engine(execution=Execution.COMPILED, mapped_weights=True)


def test_the_rank_correlation_counts_pairs_that_are_apart() -> None:
    measured = {"a": 10.0, "b": 10.9, "c": 20.0, "d": 40.0}
    assert _tau({"a": 2.0, "b": 1.0, "c": 3.0, "d": 4.0}, measured) == 1.0  # a and b are equally fast
    assert _tau({"a": 1.0, "b": 2.0, "c": 4.0, "d": 3.0}, measured) == pytest.approx(3 / 5)
    assert _tau({"a": 4.0, "b": 4.5, "c": 2.0, "d": 1.0}, measured) == -1.0


def situation() -> Situation:
    options = tuple(
        Option(
            OptionKind.SUBNET,
            f"subnet-{number}",
            Engine(),
            OptionCosts(10.0 * (1 + number)),
            OptionScore(0.7 + 0.1 * number, Metric.ACCURACY),
        )
        for number in range(2)
    )
    reading = SensorReading()
    return Situation(10.0, "subnet-0", 0.0, options, 1.0, False, reading, reading, Targets())


def test_the_benchmark_chooses_an_option_while_it_is_offered() -> None:
    policy = Chosen(Settings())
    assert policy.decide(situation()).option == "subnet-0"
    policy.option = "subnet-1"
    assert policy.decide(situation()).option == "subnet-1"
    policy.option = "subnet-1-helped"
    assert policy.decide(situation()).option == "subnet-0"


def test_a_timed_policy_decides_as_the_other_one() -> None:
    settings = {"name": "contextual", "importance": {"accuracy": 9}, "dwell": "1s"}
    timed = Timed(make_policy(settings))
    assert timed.decide(situation()) == make_policy(settings).decide(situation())
    assert timed.decide(replace(situation(), targets=Targets(latency="15ms"))).option == "subnet-0"
    assert len(timed.decision_us) == 2


def test_the_accuracy_of_inferences_is_that_of_the_options_that_ran() -> None:
    inferences = np.zeros(4, INFERENCE)
    inferences["option"] = [0, 1, 1, 1]
    inferences["latency_ms"] = [1, 2, 3, 6]
    seen = Observations(inferences)
    assert seen.accuracy({"subnet-0": 0.5, "subnet-1": 0.9}) == pytest.approx(0.8)
    assert (seen.ms, seen.median_ms) == (3.0, 2.5)


def test_copies_of_the_package_offer_some_of_the_entries(tmp_path) -> None:
    package = make_block_package(tmp_path / "package")
    pool = write_pool(package)
    shipped = tuple(
        PoolEntry(files=("serve.tflite",), latency_ms=10.0, accuracy=0.9, engine=engine, memory_bytes=memory)
        for engine, memory in ((MAPPED, 6e5), (Engine(), 1e6))
    )
    accuracies = {SUBNETS[0].files: 0.6, SUBNETS[1].files: 0.8, ("serve.tflite",): 0.85}
    subject = Subject(package, pool, shipped, accuracies)
    assert subject.own == shipped[1]
    copy = subject.with_entries(tmp_path / "copy", subject.whole)
    assert subject.accuracies_of(copy) == {
        "subnet-0": 0.6,
        "subnet-1": 0.8,
        "subnet-2": 0.85,
        "subnet-3": 0.85,
    }
    alone = subject.with_entries(tmp_path / "alone", subject.shipped)
    assert list(subject.accuracies_of(alone).values()) == [0.85, 0.85]
