"""`mistify report`: the page of a job, and pictures of a job on a server or of a saved report."""

import csv
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from PIL import Image

from mistify.config.data.metric import Metric, OutputScore
from mistify.config.data.targets import Target
from mistify.errors import ErrorCode
from mistify.jobs.report import report
from mistify_client.porting.goals_csv import goals_csv
from tests.mistify_client.conftest import REPORT_PAGE
from tests.support.stored import digits_job

AXES = {"flops", "params", "memory_bytes", "measured_latency_ms"}


@pytest.fixture
def job(tmp_path):
    (tmp_path / "store").mkdir()
    return digits_job(tmp_path / "store")


def pictures(directory):
    found = {}
    for path in directory.iterdir():
        with Image.open(path) as image:
            found[path.name] = (image.format, image.size)
    return found


def test_pictures_are_drawn_of_a_job_on_a_server(mistify, service, job, tmp_path):
    pytest.importorskip("matplotlib")
    service.fake.job = replace(job, id="job-1")
    result = mistify("report", "job-1", "--server", service.address, "--png", tmp_path / "new" / "png")
    assert result.exit_code == 0
    drawn = pictures(tmp_path / "new" / "png")
    assert drawn == {f"{axis}.png": ("PNG", (1080, 675)) for axis in AXES}
    assert all(f"picture: {tmp_path / 'new' / 'png' / name}" in result.stdout for name in drawn)


@pytest.mark.sampled
@pytest.mark.parametrize("named", [".", "report.json"])
def test_pictures_of_a_saved_report_are_the_same(mistify, service, job, tmp_path, named):
    pytest.importorskip("matplotlib")
    service.fake.job = replace(job, id="job-1")
    (tmp_path / "report.json").write_text(json.dumps(report(service.fake.job)))
    assert mistify("report", tmp_path / named, "--png", tmp_path / "disk").exit_code == 0
    mistify("report", "job-1", "--server", service.address, "--png", tmp_path / "server")
    for axis in AXES:
        one, other = (tmp_path / place / f"{axis}.png" for place in ("disk", "server"))
        with Image.open(one) as first, Image.open(other) as second:
            assert first.tobytes() == second.tobytes()


def test_the_page_is_saved_as_the_server_sends_it(mistify, service, tmp_path):
    file = tmp_path / "new" / "page.html"
    result = mistify("report", "job-1", "--server", service.address, "--html", file)
    assert (result.exit_code, result.stdout) == (0, f"report: {file}\n")
    assert file.read_bytes() == REPORT_PAGE


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_goals_are_saved_as_csv(mistify, service, job, tmp_path):
    service.fake.job = job = replace(job, id="job-1")
    saved = tmp_path / "report.json"
    saved.write_text(json.dumps(report(job)))
    result = mistify("report", "job-1", "--server", service.address, "--csv", tmp_path / "new" / "goals.csv")
    assert (result.exit_code, result.stdout) == (0, f"goals: {tmp_path / 'new' / 'goals.csv'}\n")
    rows = rows_of(tmp_path / "new" / "goals.csv")
    assert mistify("report", tmp_path, "--csv", tmp_path / "goals.csv").exit_code == 0
    assert rows_of(tmp_path / "goals.csv") == rows
    assert [row["id"] for row in rows] == [goal.id for goal in job.goals]
    for row, goal in zip(rows, json.loads(saved.read_text())["goals"], strict=True):
        for name, figure in goal["achieved"].items():
            cell = row[f"achieved.{name}"]
            assert cell == "" if figure is None else cell == str(figure)
        for name, limit in goal["budget"].items():
            assert row[f"budget.{name}"] == str(limit)
        assert row["met"] == str(goal["met"])


def test_tasks_targets_and_outputs_have_columns_of_their_own(service):
    half, tenth = service.fake.job.goals
    scores = OutputScore("class", Metric.ACCURACY, 0.75), OutputScore("boxes", Metric.MSE, 0.0123)
    spec = replace(half.spec, targets=(Target("boxes", Metric.MSE, 0.02),))
    goals = (replace(half, output_scores=scores, spec=spec), tenth)
    first, second = csv.DictReader(goals_csv(report(replace(service.fake.job, goals=goals))).splitlines())
    assert (first["outputs.class.accuracy"], first["outputs.boxes.mse"]) == ("0.75", "0.0123")
    assert (second["outputs.class.accuracy"], second["outputs.boxes.mse"]) == ("", "")
    assert first["targets.boxes.mse"] == "0.02"


def test_missing_files_and_options_are_reported(mistify, service, tmp_path):
    png, html = ("--png", tmp_path / "png"), ("--html", tmp_path / "page.html")
    at = ("--server", service.address)
    pytest.importorskip("matplotlib")
    for arguments, code, words in (
        (["job-1", *at], ErrorCode.INVALID_CONFIG, "give --png DIR, --html FILE, --csv FILE, --mlflow URI"),
        ([tmp_path, *html], ErrorCode.INVALID_CONFIG, f"mistify port writes {tmp_path / 'report.html'}"),
        (["job-9", *at, *html], ErrorCode.NOT_FOUND, "there is no job 'job-9'"),
        (["job-1", *at, *png], ErrorCode.NOT_FOUND, "fewer than two goals of job-1 have a package (yet)"),
        (["job-1", *png], ErrorCode.NOT_FOUND, "there is no job-1; expected the output directory"),
        (["job-1", *at, *html, "--experiment", "a"], ErrorCode.INVALID_CONFIG, "needs --mlflow URI"),
    ):
        result = mistify("report", *arguments)
        assert (result.exit_code, words in result.stderr) == (code.exit_code, True), result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"job": "j", "goals": [{}], "source": null}', '"\\ud800"']
)
def test_an_invalid_report_is_refused(mistify, tmp_path, content):
    pytest.importorskip("matplotlib")
    (tmp_path / "report.json").write_text(content)
    result = mistify("report", tmp_path, "--png", tmp_path / "png")
    assert result.exit_code == ErrorCode.INVALID_CONFIG.exit_code
    assert f"{tmp_path / 'report.json'} is not a report" in result.stderr


@pytest.mark.parametrize(
    ("module", "extra", "option"),
    [("matplotlib", "plots", ("--png", "png")), ("mlflow", "mlflow", ("--mlflow", "sqlite:///mlflow.db"))],
)
def test_without_an_optional_library_the_error_says_what_to_install(tmp_path, module, extra, option):
    """Runs in a separate process in which the library cannot be imported."""
    script = f"import sys; sys.modules[{module!r}] = None; from mistify_client.cli.main import app; app()"
    command = [sys.executable, "-c", script, "report", str(tmp_path), *option]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == ErrorCode.UNAVAILABLE.exit_code
    assert f"pip install 'mistify-porting[{extra}]'" in done.stderr
    assert list(tmp_path.iterdir()) == []
