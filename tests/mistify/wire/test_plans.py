from hypothesis import given, settings
from hypothesis import strategies as st

from mistify.config.metric import Metric
from mistify.costs.formats import AxisFormat
from mistify.jobs.plan import Estimate, OutOfReach, Plan, PlannedBatch, PlannedEdge
from mistify.parsing.quantities import measured_in
from mistify.v1 import porting_pb2 as pb
from mistify.wire.porting import plan_from_proto, plan_to_proto

ENERGY = AxisFormat("energy_mj", "energy", measured_in({"mJ": 1.0, "J": 1e3}))

finite = st.floats(allow_nan=False)
costs = st.dictionaries(st.text(max_size=20), finite, max_size=3)
texts = st.text(max_size=20)
names = st.text(min_size=1, max_size=20)
int64 = st.integers(0, 2**63 - 1)
estimates = st.none() | st.builds(Estimate, finite, finite)
edges = st.builds(
    PlannedEdge,
    goals=st.lists(names, min_size=1, max_size=3).map(tuple),
    parent=st.none() | names,
    budget=costs,
    algorithm=texts,
    choice=texts,
    costs=costs,
    accuracy=estimates,
    accuracy_target=st.none() | finite,
    steps=int64,
    seconds=finite,
    warning=texts,
)
batches = st.builds(
    PlannedBatch,
    model=texts,
    metric=st.sampled_from(Metric),
    source_costs=costs,
    source_accuracy=estimates,
    source_steps=int64,
    source_seconds=finite,
    edges=st.lists(edges, max_size=2).map(tuple),
    seconds=finite,
    evidence=texts,
    formats=st.sampled_from([(), (ENERGY,)]),
)
plans = st.builds(
    Plan,
    st.lists(batches, max_size=2).map(tuple),
    st.lists(st.builds(OutOfReach, texts, texts, texts, texts), max_size=2).map(tuple),
)


@settings(deadline=None)
@given(plans)
def test_a_plan_survives_the_wire(plan: Plan) -> None:
    wire = plan_to_proto(plan).SerializeToString()
    assert plan_from_proto(pb.PortingPlan.FromString(wire)) == plan
