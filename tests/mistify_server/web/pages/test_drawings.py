"""Trees, plots and costs on the pages."""

from dataclasses import replace
from itertools import pairwise

import pytest

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.formats import AxisFormat
from mistify.costs.quantization import Quantization
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import Goal, GoalState, Job, JobState, Source
from mistify.jobs.package_spec import PackageSpec
from mistify.parsing.quantities import PLAIN
from mistify_server.web.pages.goal_costs import costs_of
from mistify_server.web.pages.goal_tree import GAP, HEIGHT, NARROWEST, draw_tree
from mistify_server.web.pages.plots import plots_of
from tests.support.rendered import goal_page, job_page

GOALS = [
    Goal("half", 0, PackageSpec({"flops": 50.0})),
    Goal("third", 0, PackageSpec({"flops": 33.0}), parent="half"),
    Goal("quarter", 0, PackageSpec({"flops": 25.0}), parent="half"),
    Goal("small", 0, PackageSpec({"params": 5.0})),
    Goal("stray", 0, PackageSpec({"params": 4.0}), parent="of another page"),
]


def test_every_goal_is_in_the_column_of_its_depth_next_to_its_parent() -> None:
    drawing = draw_tree(GOALS)
    places = {node.goal.id if node.goal else "": (node.x, node.y) for node in drawing.nodes}
    columns = {name: x / (NARROWEST + GAP) for name, (x, _) in places.items()}
    assert columns == {"": 0, "half": 1, "third": 2, "quarter": 2, "small": 1, "stray": 1}
    assert places["half"][1] == (places["third"][1] + places["quarter"][1]) / 2
    leaves = sorted(places[name][1] for name in ("third", "quarter", "small", "stray"))
    assert all(below - above >= HEIGHT for above, below in pairwise(leaves))
    assert len(drawing.lines) == len(GOALS)
    assert drawing.height >= max(y for _, y in places.values()) + HEIGHT


def test_each_batch_has_its_own_source() -> None:
    others = [replace(goal, batch=1, id=f"other-{goal.id}", parent=None) for goal in GOALS[:2]]
    drawing = draw_tree([GOALS[0], *others])
    sources = {node.batch: node for node in drawing.nodes if node.goal is None}
    assert sources.keys() == {0, 1}
    heights = [node.y for node in drawing.nodes if node.goal and node.batch == 1]
    assert sources[1].y == sum(heights) / 2
    assert sources[0].y == next(node.y for node in drawing.nodes if node.goal is GOALS[0])
    assert len(drawing.lines) == 3


def test_the_source_of_each_batch_shows_its_own_accuracy() -> None:
    one = job()
    assert job_page(one).count("95.0%</text></g>") == 1
    others = tuple(replace(goal, id=f"other-{goal.id}", batch=1, parent=None) for goal in one.goals)
    assert "95.0%</text></g>" not in job_page(replace(one, goals=others))
    source = replace(one.sources[0], batch=1, tuned_accuracy=0.4)
    both = job_page(replace(one, goals=(*one.goals, *others), sources=(*one.sources, source)))
    assert [both.count(f"{shown}</text></g>") for shown in ("95.0%", "40.0%")] == [1, 1]


def test_a_path_of_many_goals_is_drawn_without_recursion() -> None:
    path = [Goal(f"g{n}", 0, PackageSpec({}), parent=f"g{n - 1}" if n else None) for n in range(5_000)]
    assert len(draw_tree(path).nodes) == 5_001


def test_nodes_have_room_for_their_labels() -> None:
    short, long = (
        draw_tree(GOALS),
        draw_tree([replace(GOALS[0], id="classifier-jetson-agx-orin-50"), *GOALS[1:]]),
    )
    assert short.node_width == NARROWEST
    assert long.node_width > NARROWEST + 100
    assert long.width == 2 * (long.node_width + GAP) - GAP  # the children's parent is unknown now
    assert draw_tree([replace(GOALS[0], id="m" * 5_000)]).node_width < 700
    assert "classifier-jetson-agx-orin-50</text>" in job_page(
        replace(job(), goals=(replace(job().goals[0], id="classifier-jetson-agx-orin-50"),))
    )


def test_a_large_tree_is_folded() -> None:
    goals = tuple(replace(job().goals[0], id=str(number)) for number in range(31))
    assert "<details open>" in job_page(replace(job(), goals=goals[:30]))
    assert "<details open>" not in job_page(replace(job(), goals=goals))


def test_the_source_is_drawn_even_without_goals() -> None:
    assert [node.goal for node in draw_tree([]).nodes] == [None]


def job() -> Job:
    goals = [
        replace(
            goal,
            state=GoalState.MET if goal.id != "small" else GoalState.UNMET,
            achieved={"flops": 10.0 * (number + 1), "params": 3.0},
            accuracy=0.5 + number / 10,
        )
        for number, goal in enumerate(GOALS[:4])
    ]
    source = Source({"flops": 100.0, "params": 10.0}, 0.9, tuned_accuracy=0.95)
    return Job("j", JobState.DONE, tuple(goals), 0, (source,))


def test_a_plot_shows_packages_limits_and_the_source() -> None:
    flops, params = plots_of(job())
    assert (flops["title"], flops["score"], flops["limits"]) == ("multiply-adds", "accuracy", [25, 33, 50])
    assert flops["share"] is True
    traces = {trace["name"]: trace for trace in flops["traces"]}
    assert traces["met"]["text"] == ["half", "third", "quarter"]
    assert (traces["not met"]["x"], traces["not met"]["y"]) == ([40.0], [pytest.approx(0.8)])
    assert (traces["source"]["x"], traces["source"]["y"]) == ([100.0], [0.95])
    assert params["limits"] == [5.0]


def test_a_goal_shows_the_costs_in_its_own_precision() -> None:
    goal = Goal(
        "g",
        0,
        PackageSpec(
            {"memory_bytes@int8": 30.0}, quantization=QuantizationConfig(precision=Quantization.INT8)
        ),
        achieved={
            "flops": 5.0,
            "memory_bytes": 100.0,
            "memory_bytes@float16": 50.0,
            "memory_bytes@int8": 25.0,
        },
        measured={"latency_ms@host": 2.0, "latency_ms@host@int8": 1.0},
    )
    source = Source({"flops": 10.0, "memory_bytes": 200.0}, measured={"latency_ms@host": 4.0})
    shown = [(cost.label, cost.reached, cost.limit, cost.source) for cost in costs_of(goal, source, ())]
    assert shown == [
        ("memory in int8", 25.0, 30.0, 200.0),  # limits come first
        ("multiply-adds", 5.0, None, 10.0),
        ("latency on host in int8, measured", 1.0, None, 4.0),
    ]


def test_the_kind_of_latency_is_stated_once() -> None:
    latencies = {"latency_ms@host": 1.0, "latency_ms@pi": 9.0}
    shown = [cost.label for cost in costs_of(Goal("g", 0, PackageSpec({}), achieved=latencies), None, ())]
    assert shown == ["latency on host, predicted", "predicted latency on pi"]


def test_costs_on_other_hardware_are_apart() -> None:
    latencies = {"flops": 5.0, "latency_ms@host": 1.0, "latency_ms@pi": 9.0, "latency_ms@a100": 2.0}
    goal = Goal("g", 0, PackageSpec({"latency_ms@pi": 9.5}), achieved=latencies)
    elsewhere = {cost.axis: cost.elsewhere for cost in costs_of(goal, None, ())}
    assert [axis for axis, apart in elsewhere.items() if apart] == ["latency_ms@a100"]
    page = goal_page(Job("j", JobState.DONE, (goal,), 0), goal, GoalDetails(None, (), 0))
    assert "<summary>1 cost on other hardware</summary>" in page


def test_a_goal_without_a_package_shows_its_limits() -> None:
    (shown,) = costs_of(
        Goal("g", 0, PackageSpec({"memory_bytes@int8": 30.0})), Source({"memory_bytes": 200.0}), ()
    )
    assert (shown.label, shown.reached, shown.limit, shown.source) == ("memory in int8", None, 30.0, 200.0)


def test_a_goal_with_an_unknown_source_shows_only_its_own_costs() -> None:
    goal = Goal(
        "g", 1, PackageSpec({}), achieved={"flops": 5.0, "score": 2.0}, measured={"latency_ms@host": 2.0}
    )
    own = AxisFormat("score", "score of a plug-in", PLAIN)
    shown = [(cost.label, cost.source) for cost in costs_of(goal, None, (own,))]
    assert shown == [
        ("multiply-adds", None),
        ("score of a plug-in", None),
        ("latency on host, measured", None),
    ]
    (limited,) = costs_of(Goal("g", 1, PackageSpec({"flops": 5.0})), None, ())
    assert limited.source is None
