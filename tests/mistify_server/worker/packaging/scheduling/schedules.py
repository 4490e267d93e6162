"""Schedules of random graphs, and their memory by a simulation that frees tensors one after the other."""

import numpy as np

from mistify_server.worker.packaging.scheduling.schedule import Schedule, Step


def random_schedule(seed, count=30):
    """A graph in which each operator writes one tensor and reads up to three earlier ones."""
    rng = np.random.default_rng(seed)
    steps = [Step(0, (0,), (1,))]
    for at in range(1, count):
        read = rng.choice(at + 1, min(at, rng.integers(1, 4)), replace=False)
        steps.append(Step(at, tuple(map(int, read)), (at + 1,)))
    sizes = {tensor: int(size) for tensor, size in enumerate(rng.integers(1, 100, count + 1))}
    return Schedule(tuple(steps), sizes, (0,), (count,), {})


def simulated_peak(schedule):
    """The most bytes at once if each tensor is freed after the last step that reads it."""
    kept = {*schedule.inputs, *schedule.outputs}
    there, most = set(schedule.inputs), 0
    for at, step in enumerate(schedule.steps):
        assert {*step.inputs} <= there, f"step {at} reads what is not there"
        there |= {*step.outputs}
        most = max(most, sum(schedule.sizes[tensor] for tensor in there))
        still_read = {tensor for later in schedule.steps[at + 1 :] for tensor in later.inputs}
        there = {tensor for tensor in there if tensor in still_read or tensor in kept}
    assert {*schedule.outputs} <= there
    return most


def computed(schedule):
    """What each output is computed from: an expression of operators and inputs."""
    values = {tensor: f"input {tensor}" for tensor in schedule.inputs}
    for step in schedule.steps:
        arguments = ", ".join(values[tensor] for tensor in step.inputs)
        values |= dict.fromkeys(step.outputs, f"{step.operator}({arguments})")
    return [hash(values[tensor]) for tensor in schedule.outputs]
