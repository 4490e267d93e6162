"""Strategies for all values of jobs that servers send."""

from hypothesis import strategies as st

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.config.package.branches import BranchesConfig
from mistify.config.package.compression import CompressionConfig
from mistify.config.package.exits import ExitsConfig
from mistify.config.package.quantization import QuantizationConfig
from mistify.config.package.tuning import TuningConfig
from mistify.config.task import TaskConfig
from mistify.costs.formats import AxisFormat
from mistify.costs.quantization import Quantization
from mistify.errors import Problem
from mistify.jobs.details import GoalDetails, LayerChange, LayerFigures, LayerTable
from mistify.jobs.job import (
    BranchFigures,
    Goal,
    GoalState,
    Job,
    JobEvent,
    JobPriority,
    JobState,
    PackageFile,
    ProgressUpdate,
    Source,
)
from mistify.jobs.network_graph import GraphNode, NetworkGraph
from mistify.jobs.package_spec import PackageSpec
from mistify.jobs.plan import (
    Interval,
    OutOfReach,
    OutputEstimate,
    Plan,
    PlannedBatch,
    PlannedEdge,
    PlannedPreparation,
)
from mistify.parsing.quantities import BYTES, COUNT, PLAIN, TIME, measured_in
from mistify.quotas import CallerStatus, Quota, Usage

finite = st.floats(allow_nan=False)
costs = st.dictionaries(st.text(max_size=20), finite, max_size=4)
texts = st.text(max_size=30)
names = st.text(min_size=1, max_size=30)
int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
files = st.builds(PackageFile, texts, int64, texts)
quantizations = st.builds(QuantizationConfig, precision=st.sampled_from(Quantization)) | st.builds(
    QuantizationConfig,
    precision=st.sampled_from([Quantization.INT8, Quantization.INT8_QAT]),
    inputs=st.just("int8"),
)
compressions = st.builds(CompressionConfig, sparsity=st.floats(0.01, 0.99)) | st.builds(
    CompressionConfig, clusters=st.integers(2, 256)
)
branches = st.builds(
    lambda low, high, count: BranchesConfig.model_validate({"from": low, "to": high, "count": count}),
    st.floats(0.05, 0.99),
    st.floats(1.0, 20.0),
    st.integers(2, 16),
)
exits = st.builds(
    ExitsConfig,
    loss=st.lists(st.sampled_from([0.005, 0.01, 0.03, 0.1]), min_size=1, unique=True).map(tuple),
    after=st.lists(names, max_size=2).map(tuple),
)
tunings = st.builds(
    TuningConfig,
    trainable=st.sampled_from(["none", "network", "head", "biases"]) | st.integers(1, 2**31),
    optimizer=st.sampled_from(["sgd", "adam"]),
    batch_size=st.integers(1, 2048).map(lambda half: 2 * half),
    micro_batch=st.sampled_from([None, 1, 2]),
    adaptation=st.booleans(),
)
words = st.lists(st.text("abc:1", min_size=1, max_size=5), min_size=2, max_size=3, unique=True)
tasks = words.map(lambda chosen: TaskConfig(properties=tuple(chosen))) | words.map(
    lambda chosen: TaskConfig(classes=tuple(chosen))
)
metrics = st.sampled_from([*Metric, Metric("top_two"), Metric("pinball_error")])
targets = st.lists(st.builds(Target, texts, metrics, finite), max_size=3).map(tuple)
scores = st.lists(st.builds(OutputScore, texts, metrics, finite), max_size=2).map(tuple)
specs = st.builds(
    PackageSpec,
    budget=costs,
    targets=targets,
    quantization=quantizations,
    threads=st.integers(1, 1024),
    branches=st.none() | branches,
    exits=st.none() | exits,
    compression=st.none() | compressions,
    tuning=tunings,
    task=st.none() | tasks,
)
goals = st.builds(
    Goal,
    id=names,
    batch=st.integers(0, 2**31 - 1),
    spec=specs,
    metric=metrics,
    algorithm=texts,
    choice=texts,
    warning=texts,
    parent=st.none() | names,
    state=st.sampled_from(GoalState),
    achieved=costs,
    measured=costs,
    accuracy=st.none() | finite,
    reason=texts,
    note=texts,
    seconds=finite,
    steps=int64,
    files=st.lists(files, max_size=3).map(tuple),
    output_scores=scores,
    branch_figures=st.lists(st.builds(BranchFigures, finite, costs, costs, finite), max_size=2).map(tuple),
    precision_choice=texts,
)
units = st.dictionaries(
    st.text("abcdJ/", min_size=1, max_size=5).filter(lambda name: name[0] != "/"),
    st.floats(1e-30, 1e30).filter(lambda size: size != 1),
    max_size=3,
)
kinds = units.map(lambda units: measured_in({**units, "W": 1})) | st.sampled_from((TIME, COUNT, BYTES, PLAIN))
formats = st.builds(AxisFormat, names, texts, kinds)
sources = st.builds(
    Source,
    costs,
    st.none() | finite,
    batch=st.integers(0, 2**31 - 1),
    model=texts,
    metric=metrics,
    output_scores=scores,
    tuned_output_scores=scores,
    formats=st.lists(formats, max_size=2).map(tuple),
    tuned_accuracy=st.none() | finite,
    measured=costs,
    steps=int64,
    preparing_steps=st.dictionaries(texts, int64, max_size=2),
)
jobs = st.builds(
    Job,
    id=names,
    state=st.sampled_from(JobState),
    goals=st.lists(goals, max_size=3).map(tuple),
    created_unix_ms=int64,
    sources=st.lists(sources, max_size=2).map(tuple),
    seconds=finite,
    spent=st.dictionaries(texts, finite, max_size=4),
    reason=texts,
    priority=st.sampled_from(JobPriority),
)
present_intervals = st.builds(Interval, finite, finite, finite)
intervals = st.none() | present_intervals
output_estimates = st.lists(st.builds(OutputEstimate, texts, metrics, present_intervals), max_size=2).map(
    tuple
)
edges = st.builds(
    PlannedEdge,
    goals=st.lists(names, min_size=1, max_size=3).map(tuple),
    parent=st.none() | names,
    budget=costs,
    algorithm=texts,
    choice=texts,
    costs=costs,
    accuracy=intervals,
    outputs=output_estimates,
    targets=targets,
    steps=int64,
    seconds=finite,
    warning=texts,
    precisions=st.dictionaries(names, texts, max_size=2),
    task=st.none() | tasks,
)
batches = st.builds(
    PlannedBatch,
    model=texts,
    metric=metrics,
    source_costs=costs,
    source_accuracy=intervals,
    source_outputs=output_estimates,
    source_steps=int64,
    source_seconds=finite,
    edges=st.lists(edges, max_size=2).map(tuple),
    seconds=finite,
    evidence=texts,
    formats=st.lists(formats, max_size=2).map(tuple),
    preparations=st.lists(st.builds(PlannedPreparation, texts, int64, finite), max_size=2).map(tuple),
    flips=st.booleans(),
    present_accuracy=st.none() | finite,
    present_outputs=scores,
    class_counts=st.lists(texts, max_size=2).map(tuple),
    left_out=st.lists(texts, max_size=2).map(tuple),
)
plans = st.builds(
    Plan,
    st.lists(batches, max_size=2).map(tuple),
    st.lists(st.builds(OutOfReach, texts, texts, texts, texts), max_size=2).map(tuple),
)
updates = st.builds(
    ProgressUpdate,
    texts,
    int64,
    int64,
    costs,
    st.none() | finite,
    metrics,
    st.none() | finite,
    costs,
    costs,
)
figures = st.none() | st.builds(LayerFigures, int64, int64, int64, finite)
changes = st.builds(LayerChange, texts, texts, st.lists(texts, max_size=2).map(tuple), figures, figures)
nodes = st.builds(
    GraphNode,
    texts,
    st.none() | int32,
    texts,
    st.lists(int32, max_size=2).map(tuple),
    st.lists(int64, max_size=3).map(tuple),
    texts,
    int64,
    texts,
    int64,
    int64,
    st.none() | int64,
    st.none() | finite,
    st.none() | finite,
    texts,
)
graphs = st.builds(NetworkGraph, texts, texts, st.lists(nodes, max_size=2).map(tuple), int32)
details = st.builds(
    GoalDetails,
    st.none() | st.builds(LayerTable, texts, st.lists(changes, max_size=2).map(tuple)),
    st.lists(updates, max_size=2).map(tuple),
    int64,
    st.none() | graphs,
)
events = st.builds(
    JobEvent,
    int64,
    int64,
    st.none() | names,
    st.sampled_from(JobState) | st.sampled_from(GoalState) | updates,
)
problems = st.builds(Problem, texts, texts, texts, texts)
limits = st.none() | int64
statuses = st.builds(
    CallerStatus,
    texts,
    st.lists(texts, max_size=3).map(tuple),
    st.builds(Quota, limits, limits, limits),
    st.builds(Usage, int64, int64, int64),
    texts,
)
