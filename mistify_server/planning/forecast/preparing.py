"""The preparations of algorithms that a batch needs, and those that pay off."""

from collections.abc import Callable, Iterator, Mapping

from executors.contract.profile import AlgorithmProfile
from mistify.jobs.plan import PlannedPreparation
from mistify_server.planning.forecast.algorithm_choice import Chooser, Edge
from mistify_server.planning.forecast.batch_time import OVERHEAD_STEPS
from mistify_server.store.plans import BatchPlan, NodePlan


def planned_preparations(
    plan: BatchPlan,
    profiles: Mapping[str, AlgorithmProfile],
    chooser: Chooser,
    edge_of: Callable[[NodePlan], Edge],
    step_seconds: float,
) -> Iterator[PlannedPreparation]:
    """Yield the forecasts of a plan's preparations, in the order of their names.

    Args:
        plan: A plan with an algorithm for every node.
        chooser: Knows the steps of preparations.
        edge_of: Returns the edge of a node.
        step_seconds: Seconds per training step of the source.
    """
    needed = {plan.preparation_of(node): node.algorithm for node in plan.nodes}
    for name, algorithm in sorted(needed.items()):
        if profiles[algorithm].prepares:
            own = [edge_of(node) for node in plan.nodes if plan.preparation_of(node) == name]
            steps = chooser.preparing_steps(algorithm, own)
            training = steps * profiles[algorithm].preparation_step
            yield PlannedPreparation(name, steps, (OVERHEAD_STEPS + training) * step_seconds)


def worthwhile(
    plan: BatchPlan,
    profiles: Mapping[str, AlgorithmProfile],
    chooser: Chooser,
    edge_of: Callable[[NodePlan], Edge],
) -> dict[str, AlgorithmProfile]:
    """Return the profiles of algorithms, without optional preparations that do not pay off.

    Args:
        plan: A plan with an algorithm for every node.
        chooser: Knows the steps of edges and preparations.
        edge_of: Returns the edge of a node.
    """
    kept = dict(profiles)
    for name in {node.algorithm for node in plan.nodes}:
        own = [node for node in plan.nodes if node.algorithm == name]
        edges = [edge_of(node) for node in own]
        training = sum(case.steps + case.spared for case in (chooser.case(edge, name) for edge in edges))
        count = len({plan.preparation_of(node) for node in own})
        if training < profiles[name].preparation_pays_from * count * chooser.preparing_steps(name, edges):
            kept[name] = profiles[name].unprepared()
    return kept
