"""Records of adapted edges, the basis for predicting later edges."""

import hashlib
from collections.abc import Iterator
from math import isfinite

import numpy as np

from mistify.costs.budget import FLOPS, Costs
from mistify_server.planning.forecast.scaling import CostScaling, distance
from mistify_server.store.edges import EdgeFeatures, EdgeRecord, OutputRecord
from mistify_server.store.plans import BatchPlan, NodePlan
from mistify_server.tasks.estimates import NetworkFeatures
from mistify_server.tasks.results import AdaptResult, SourceResult
from mistify_server.tasks.sources import DataSource


def subject_of(features: NetworkFeatures, data: DataSource) -> str:
    """Return a digest of a model and its data."""
    return hashlib.sha256(f"{features.model} {data.model_dump_json()}".encode()).hexdigest()


def record_of(
    plan: BatchPlan, node: NodePlan, root: SourceResult, parent: Costs, result: AdaptResult
) -> EdgeRecord | None:
    """Return the record of an adapted edge; None if nothing was trained, and for an edge to a task.

    The loss of a network of one task does not predict the losses of networks of all tasks.

    Args:
        node: The node at the end of the edge.
        root: The tuned source at the root of the tree.
        parent: Costs of the network at the start of the edge, without axes that were added to the plan later.
    """
    profile = plan.estimates.profiles.get(node.algorithm) if plan.estimates else None
    shared = profile.shared_steps if profile else 0
    if plan.estimates is None or node.task is not None or not (result.steps or result.spared or shared):
        return None
    features, whole = plan.estimates.features, root.source_costs[FLOPS]
    parent_costs = CostScaling(plan.estimates.scaled, plan.source_costs).completed(parent)
    return EdgeRecord(
        case=EdgeFeatures(
            subject=subject_of(features, plan.recipe.data),
            kind=features.kind,
            algorithm=node.algorithm,
            halvings=float(np.log2(whole / result.costs[FLOPS])),
            distance=distance(parent_costs, node.budget),
            share=parent[FLOPS] / whole,
            steps=result.steps,
            spared=result.spared,
            shared_steps=shared,
        ),
        source_steps=root.steps,
        source=root.teacher_accuracy,
        lost=root.metric.lost(result.accuracy, root.teacher_accuracy),
        seconds=result.seconds,
        outputs=tuple(_output_records(root, result)),
    )


def _output_records(root: SourceResult, result: AdaptResult) -> Iterator[OutputRecord]:
    """Yield records of the outputs that were measured for both the tuned source and the network."""
    before = {(score.output, score.metric): score.value for score in root.teacher_scores}
    for score in result.output_scores:
        source = before.get((score.output, score.metric))
        if source is not None and isfinite(source) and isfinite(score.value):
            lost = score.metric.lost(score.value, source)
            yield OutputRecord(output=score.output, metric=score.metric, source=source, lost=lost)
