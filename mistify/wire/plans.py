"""Plans as protobuf and back: `plan_from_proto(plan_to_proto(plan)) == plan`."""

from mistify.jobs.plan import Estimate, OutOfReach, Plan, PlannedBatch, PlannedEdge
from mistify.v1 import porting_pb2 as pb
from mistify.wire.porting import formats_from_proto, formats_to_proto, metric_from_proto


def plan_to_proto(plan: Plan) -> pb.PortingPlan:
    """A plan as a message."""
    return pb.PortingPlan(
        batches=[_batch_to_proto(batch) for batch in plan.batches],
        out_of_reach=[
            pb.OutOfReach(goal=limit.goal, limit=limit.limit, given=limit.given, nearest=limit.nearest)
            for limit in plan.out_of_reach
        ],
    )


def plan_from_proto(message: pb.PortingPlan) -> Plan:
    """A plan from a message.

    Raises:
        MistifyError: it has a metric or a unit that this version does not know.
    """
    return Plan(
        batches=tuple(map(_batch_from_proto, message.batches)),
        out_of_reach=tuple(
            OutOfReach(limit.goal, limit.limit, limit.given, limit.nearest) for limit in message.out_of_reach
        ),
    )


def _batch_to_proto(batch: PlannedBatch) -> pb.PlannedBatch:
    return pb.PlannedBatch(
        model=batch.model,
        metric=batch.metric,
        source_costs=batch.source_costs,
        source_accuracy=_estimate_to_proto(batch.source_accuracy),
        source_steps=batch.source_steps,
        source_seconds=batch.source_seconds,
        edges=map(_edge_to_proto, batch.edges),
        seconds=batch.seconds,
        evidence=batch.evidence,
        formats=formats_to_proto(batch.formats),
    )


def _batch_from_proto(message: pb.PlannedBatch) -> PlannedBatch:
    known = message.HasField("source_accuracy")
    return PlannedBatch(
        model=message.model,
        metric=metric_from_proto(message.metric),
        source_costs=dict(message.source_costs),
        source_accuracy=_estimate_from_proto(message.source_accuracy) if known else None,
        source_steps=message.source_steps,
        source_seconds=message.source_seconds,
        edges=tuple(map(_edge_from_proto, message.edges)),
        seconds=message.seconds,
        evidence=message.evidence,
        formats=formats_from_proto(message.formats),
    )


def _edge_to_proto(edge: PlannedEdge) -> pb.PlannedEdge:
    return pb.PlannedEdge(
        goals=edge.goals,
        parent=edge.parent or "",
        budget=edge.budget,
        algorithm=edge.algorithm,
        choice=edge.choice,
        costs=edge.costs,
        accuracy=_estimate_to_proto(edge.accuracy),
        accuracy_target=edge.accuracy_target,
        steps=edge.steps,
        seconds=edge.seconds,
        warning=edge.warning,
    )


def _edge_from_proto(message: pb.PlannedEdge) -> PlannedEdge:
    return PlannedEdge(
        goals=tuple(message.goals),
        parent=message.parent or None,
        budget=dict(message.budget),
        algorithm=message.algorithm,
        choice=message.choice,
        costs=dict(message.costs),
        accuracy=_estimate_from_proto(message.accuracy) if message.HasField("accuracy") else None,
        accuracy_target=message.accuracy_target if message.HasField("accuracy_target") else None,
        steps=message.steps,
        seconds=message.seconds,
        warning=message.warning,
    )


def _estimate_to_proto(estimate: Estimate | None) -> pb.Estimate | None:
    return None if estimate is None else pb.Estimate(mean=estimate.mean, deviation=estimate.deviation)


def _estimate_from_proto(message: pb.Estimate) -> Estimate:
    return Estimate(message.mean, message.deviation)
