"""Records of edges for later forecasts."""

import pytest

from mistify.config.data.metric import Metric, OutputScore
from mistify.costs.budget import FLOPS
from mistify_server.planning.forecast.records import record_of
from mistify_server.store.edges import OutputRecord
from mistify_server.store.plans import BatchPlan
from mistify_server.tasks.estimates import EdgeEstimates
from mistify_server.tasks.results import AdaptResult, SourceResult
from tests.mistify_server.planning.forecast.histories import FEATURES, PROFILES


def test_a_record_has_the_outputs_measured_both_before_and_after(plan: BatchPlan) -> None:
    costs = {FLOPS: 8.0}
    estimates = EdgeEstimates(features=FEATURES, source_steps=200, profiles=PROFILES, scaled=(costs,))
    node = plan.nodes[0].model_copy(update={"algorithm": "morphnet", "budget": {FLOPS: 4.0}})
    root = SourceResult(
        source_costs=costs,
        source_accuracy=0.5,
        teacher="t",
        teacher_accuracy=0.8,
        teacher_scores=(
            OutputScore("kind", Metric.ACCURACY, 0.5),
            OutputScore("price", Metric.MSE, 2.0),
            OutputScore("rare", Metric.ROC_AUC, float("nan")),
        ),
        root="r",
        root_costs=costs,
        steps=200,
    )
    adapted = AdaptResult(
        checkpoint="c",
        costs={FLOPS: 4.0},
        accuracy=0.6,
        output_scores=(
            OutputScore("kind", Metric.ACCURACY, 0.25),
            OutputScore("price", Metric.MSE, 4.0),
            OutputScore("rare", Metric.ROC_AUC, 0.9),
            OutputScore("new", Metric.ACCURACY, 0.9),
        ),
        met=True,
        reason="",
        steps=100,
        spared=500,
    )
    asked = plan.model_copy(update={"estimates": estimates, "source_costs": costs, "nodes": (node,)})
    record = record_of(asked, node, root, costs, adapted)
    assert record is not None
    assert record.lost == pytest.approx(0.25)
    assert (record.case.steps, record.case.learned) == (100, 600)
    assert record.outputs == (
        OutputRecord(output="kind", metric=Metric.ACCURACY, source=0.5, lost=0.5),
        OutputRecord(output="price", metric=Metric.MSE, source=2.0, lost=Metric.MSE.lost(4.0, 2.0)),
    )
