import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.task import TaskConfig
from mistify.costs.budget import FLOPS, PARAMS
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.jobs.plan import (
    Interval,
    OutOfReach,
    OutputEstimate,
    Plan,
    PlannedBatch,
    PlannedEdge,
    PlannedPreparation,
)
from mistify.v1 import porting_pb2 as pb
from mistify_client.cli.main import app
from mistify_client.porting.plan_report import plan_report, plan_tree
from tests.support.targets import overall

HALF = PlannedEdge(
    goals=("half", "half-int8"),
    parent=None,
    budget={FLOPS: 500.0},
    algorithm="morphnet",
    choice="chamnet takes [longer]",
    costs={FLOPS: 500.0, PARAMS: 60.0},
    accuracy=Interval(0.75, 0.7, 0.78),
    targets=(),
    steps=700,
    seconds=40.0,
    precisions={"half-int8": "int8, at which 79% of the source fits the limits (float32 25%)"},
)
TENTH = PlannedEdge(
    goals=("tenth",),
    parent="half",
    budget={FLOPS: 100.0},
    algorithm="chamnet",
    choice="morphnet loses more",
    costs={FLOPS: 100.0, PARAMS: 20.0},
    accuracy=None,
    targets=overall(0.9),
    steps=3000,
    seconds=400.0,
    warning="accuracy 90.0% is likely to be missed",
)
BATCH = PlannedBatch(
    model="net.keras",
    metric=Metric.ACCURACY,
    source_costs={FLOPS: 1000.0, PARAMS: 100.0},
    source_accuracy=Interval(0.8, 0.77, 0.81),
    source_steps=200,
    source_seconds=8.0,
    edges=(HALF, TENTH),
    seconds=448.0,
    evidence="based on 3 edges of this model and data",
)
TINY = OutOfReach("tiny", "FLOP", "0.001x", "0.0042x")


def lines_of(plan: Plan) -> list[str]:
    console = Console(file=io.StringIO(), width=160)
    console.print(plan_tree(plan))
    return console.file.getvalue().splitlines()


def test_the_tree_shows_every_goal_below_its_parent_with_all_predictions():
    lines = [line.rstrip() for line in lines_of(Plan((BATCH,), (TINY,)))]
    assert lines == [
        "net.keras: accuracy 80.0% (77.0% to 81.0%) after 200 steps, 8 s; predictions based on 3 edges "
        "of this model and data",
        "└── half and half-int8: accuracy 75.0% (70.0% to 78.0%), multiply-adds 50%, parameters 60%, "
        "700 steps, 40 s",
        "    morphnet: chamnet takes [longer]",
        "    half-int8: int8, at which 79% of the source fits the limits (float32 25%)",
        "    └── tenth: accuracy unknown, multiply-adds 10%, parameters 20%, 3,000 steps, 7 min",
        "        chamnet: morphnet loses more",
        "        accuracy 90.0% is likely to be missed",
        "tiny: FLOP 0.001x cannot be met; the nearest that can is 0.0042x, or start from a smaller model",
        "The job takes about 7 min.",
    ]


def test_the_tree_shows_preparations_before_the_goals_that_need_them():
    prepared = replace(BATCH, preparations=(PlannedPreparation("nested", 2_400, 75.0),))
    lines = [line.strip() for line in lines_of(Plan((prepared,)))]
    assert lines[1] == "├── nested prepares for all of its goals at once: 2,400 steps, 75 s"
    assert lines[2].startswith("└── half and half-int8")
    (batch,) = plan_report(Plan((prepared,)))["batches"]
    assert batch["preparations"] == [{"algorithm": "nested", "steps": 2_400, "seconds": 75.0}]


def test_the_tree_mentions_flipped_images():
    assert not any("flipped" in line for line in lines_of(Plan((BATCH,))))
    flipping = Plan((replace(BATCH, flips=True),))
    assert "images are flipped for training" in lines_of(flipping)[1]
    (batch,) = plan_report(flipping)["batches"]
    assert batch["flips"] is True


def test_the_tree_lists_skipped_files():
    counts = ("dataset.train: 9 cat and 3 dog",)
    lacking = Plan((replace(BATCH, class_counts=counts, left_out=("dataset.train: 12 .heic in cat",)),))
    assert "dataset.train: 9 cat and 3 dog" in lines_of(lacking)[1]
    assert "dataset.train: 12 .heic in cat are not read" in lines_of(lacking)[2]
    assert plan_report(lacking)["batches"][0]["left_out"] == ["dataset.train: 12 .heic in cat"]


def test_the_tree_shows_each_of_several_outputs():
    def outputs(kind, price):
        return (
            OutputEstimate("kind", Metric.ACCURACY, Interval(kind, kind - 0.01, kind + 0.01)),
            OutputEstimate("price", Metric.MSE, Interval(price, price - 0.5, price + 0.5)),
        )

    half = replace(HALF, outputs=outputs(0.85, 2.5))
    several = replace(BATCH, source_outputs=outputs(0.9, 2.0), edges=(half,))
    text = " ".join(line.strip() for line in lines_of(Plan((several,))))
    assert "kind: accuracy 90.0% (89.0% to 91.0%), price: mse 2 (1.5 to 2.5) after" in text
    assert "kind: accuracy 85.0% (84.0% to 86.0%), price: mse 2.5 (2 to 3), multiply" in text
    kind, price = (OutputScore("kind", Metric.ACCURACY, 0.347), OutputScore("price", Metric.MSE, 9.0))
    known = replace(several, present_accuracy=0.5, present_outputs=(kind, price))
    text = " ".join(line.strip() for line in lines_of(Plan((known,))))
    assert "accuracy 50.0% now, " in text
    assert "kind: accuracy 34.7% now, 90.0% (89.0% to 91.0%), price: mse 9 now, 2 (1.5 to 2.5) after" in text
    (reported,) = plan_report(Plan((known,)))["batches"]
    assert reported["present_accuracy"] == 0.5
    assert [output["value"] for output in reported["present_outputs"]] == [0.347, 9.0]
    one = replace(BATCH, source_outputs=several.source_outputs[:1], edges=(half,))
    assert "kind" not in lines_of(Plan((one,)))[0]


def test_the_tree_says_which_task_an_edge_is_for():
    of_task = replace(HALF, task=TaskConfig(properties=("exactly:2", "[odd]")), accuracy=None)
    batch = replace(BATCH, edges=(of_task, TENTH))
    lines = lines_of(Plan((batch,)))
    assert any("half and half-int8 (exactly:2, [odd]): accuracy unknown" in line for line in lines)
    first, second = plan_report(Plan((batch,)))["batches"][0]["edges"]
    assert (first["task"], second["task"]) == (["exactly:2", "[odd]"], None)
    json.dumps(first)


def test_a_plan_of_many_goals_is_shown_without_reasons():
    many = tuple(replace(HALF, goals=(f"half-{place}",)) for place in range(13))
    lines = [line.strip() for line in lines_of(Plan((replace(BATCH, edges=many),)))]
    assert len(lines) == 1 + 13 + 2
    assert lines[1] == "├── half-0: accuracy 75.0% (70.0% to 78.0%), multiply-adds 50%, 700 steps, 40 s"
    assert lines[-2] == "Why algorithms and precisions were chosen: mistify plan --json."


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "less than a second"), (1.4, "about 1 s"), (7_200.0, "about 2.0 h")]
)
def test_durations_are_formatted_as_text(seconds, text):
    (*_, last) = lines_of(Plan((replace(BATCH, seconds=seconds),), ()))
    assert last.strip() == f"The job takes {text}."


@pytest.fixture
def plan(tmp_path, service, monkeypatch):
    monkeypatch.delenv("MISTIFY_SERVER", raising=False)
    entry = {
        "model": "net.keras",
        "dataset": {"train": "a", "test": "b"},
        "adaptation_goal": {"FLOP": "0.5x"},
    }
    (tmp_path / "goals.json").write_text(json.dumps([{"id": "half", **entry}]))
    command = ["plan", str(tmp_path / "goals.json"), "--server", service.address]
    return lambda *options: CliRunner().invoke(app, [*command, *options])


def test_a_plan_is_shown_without_submitting_a_job(plan, service):
    service.fake.plan = Plan((BATCH,))
    result = plan()
    assert result.exit_code == 0
    assert "half-int8" in result.output
    assert not service.fake.requests_of(pb.SubmitBatchRequest)


def test_goals_that_cannot_be_met_have_their_own_exit_code(plan, service):
    service.fake.plan = Plan((BATCH,), (TINY,))
    result = plan()
    assert result.exit_code == 11
    assert "the nearest that can is 0.0042x" in result.output


def test_json_contains_the_complete_plan(plan, service):
    service.fake.plan = Plan((BATCH,), (TINY,))
    content = json.loads(plan("--json").output)
    assert content["seconds"] == 448.0
    assert content["out_of_reach"] == [
        {"goal": "tiny", "limit": "FLOP", "value": "0.001x", "nearest": "0.0042x"}
    ]
    (batch,) = content["batches"]
    assert batch["metric"] == "accuracy"
    assert batch["source_accuracy"] == {"middle": 0.8, "low": 0.77, "high": 0.81}
    half, tenth = batch["edges"]
    assert (half["goals"], half["parent"], half["budget"]) == (["half", "half-int8"], None, {"flops": 500.0})
    assert (half["algorithm"], half["choice"]) == ("morphnet", "chamnet takes [longer]")
    assert (tenth["parent"], tenth["accuracy"]) == ("half", None)


def test_problems_are_reported_like_those_of_port(plan, service):
    problem = Problem("[0].model", '"net.keras"', "a model", "save it")
    service.fake.error = MistifyError(ErrorCode.INVALID_MODEL, "1 problem", [problem])
    result = plan()
    assert result.exit_code == ErrorCode.INVALID_MODEL.exit_code
    assert "[0].model: got" in result.output
