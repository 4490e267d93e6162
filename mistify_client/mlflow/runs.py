"""The runs of a job in MLflow: one for the job, and one for each goal, nested in it.

Writing a job again updates its runs, which are found by their tags, and adds what is new.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import mlflow
from mlflow import MlflowClient
from mlflow.entities import LoggedModelStatus, Metric, Param, Run, RunStatus, RunTag
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from requests.exceptions import RequestException

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import GoalState, JobState
from mistify.package.manifest import Manifest
from mistify_client.mlflow import flavor
from mistify_client.mlflow.curves import CurvePoint, Timeline, timelines
from mistify_client.mlflow.figures import (
    GOAL,
    JOB,
    former_tags,
    goal_metrics,
    goal_params,
    goal_state,
    goal_tags,
    job_metrics,
    job_state,
    job_tags,
    metric_name,
    run_name,
    settings_by_batch,
)
from mistify_client.mlflow.recorded_job import PackageOrigin, RecordedJob
from mistify_client.porting.damaged import DamagedPackages
from mistify_client.porting.report_files import REPORT, REPORT_PAGE

T = TypeVar("T")

#: The name of the model in the run of each goal: `runs:/RUN/package`.
PACKAGE: Final = "package"

_CONFIG: Final = "config.json"

_PARENT: Final = "mlflow.parentRunId"
_LAST_EVENT: Final = "mistify.last_event"
_MANIFEST: Final = "mistify.manifest_sha256"

#: State of a job or goal -> status of its run. A missed goal is no success, although it has a package.
STATUS: Final = {
    JobState.QUEUED.value: RunStatus.SCHEDULED,
    JobState.RUNNING.value: RunStatus.RUNNING,
    JobState.PAUSED.value: RunStatus.SCHEDULED,
    JobState.DONE.value: RunStatus.FINISHED,
    JobState.FAILED.value: RunStatus.FAILED,
    JobState.CANCELLED.value: RunStatus.KILLED,
    GoalState.WAITING.value: RunStatus.SCHEDULED,
    GoalState.MET.value: RunStatus.FINISHED,
    GoalState.UNMET.value: RunStatus.FAILED,
}

#: Maximum numbers in a request of MLflow's REST interface, and of runs in an answer.
_MOST_METRICS: Final = 1_000
_MOST_OTHERS: Final = 100
_MOST_RUNS: Final = 1_000


def write_job(
    job: RecordedJob, uri: str, experiment: str, on_model: Callable[[str, str], object]
) -> tuple[str, DamagedPackages]:
    """Write a job into MLflow.

    Args:
        uri: The tracking server, or its database.
        experiment: The name of the experiment, which is created if it does not exist.
        on_model: Called with a goal and the URI of its model, for each new model.

    Returns:
        The address of the job's run, for people, and the goals whose packages are damaged on their server.

    Raises:
        MistifyError: INVALID_CONFIG, the database is a directory; UNAVAILABLE, MLflow cannot be used, or
            refuses the job; NOT_FOUND, the experiment is deleted.
    """
    _check_database(uri)
    with _translated(uri):
        mlflow.set_tracking_uri(uri)
        client = MlflowClient(uri)
        experiment_id = _experiment(client, experiment)
        # Models are created in the current experiment of the process.
        mlflow.set_experiment(experiment_id=experiment_id)
        run_id, damaged = _JobWriter(client, experiment_id, job, on_model).write()
    if urlsplit(uri).scheme in ("http", "https"):
        return f"{shown(uri).rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}", damaged
    return f'run {run_id} in the experiment "{experiment}" of {shown(uri)}', damaged


class _JobWriter:
    """Writes one job."""

    def __init__(
        self,
        client: MlflowClient,
        experiment_id: str,
        job: RecordedJob,
        on_model: Callable[[str, str], object],
    ) -> None:
        self._client = client
        self._experiment = experiment_id
        self._job = job
        self._on_model = on_model
        self._timelines = timelines(job.events) or _durations(job.report)

    def write(self) -> tuple[str, DamagedPackages]:
        content, known, damaged = self._job.report, self._known_runs(), DamagedPackages()
        parent, own = self._run(known.get(None), run_name(content), None, job_tags(content))
        for tag in former_tags(parent.data.tags, content):
            self._client.delete_tag(own, tag)
        self._log_metrics(parent, job_metrics(content))
        for name, text in self._artifacts():
            self._client.log_text(own, text, name)
        settings = settings_by_batch(self._job)
        for goal in content["goals"]:
            tags = {**goal_tags(content, goal), _PARENT: own}
            run, run_id = self._run(known.get(goal["id"]), goal["id"], goal["id"], tags)
            self._log_params(run, goal_params(content, goal, settings))
            self._log_metrics(run, goal_metrics(goal))
            self._log_curve(run, self._timeline(goal["id"]))
            if goal["id"] in self._job.packages:
                with damaged.recording(goal["id"]):
                    self._log_package(run_id, goal["id"], self._job.packages[goal["id"]])
            self._set_status(run, goal_state(goal), self._timeline(goal["id"]))
        self._set_status(parent, job_state(content), self._timeline(None))
        return own, damaged

    def _known_runs(self) -> dict[str | None, Run]:
        """Return the runs of the job (None) and of its goals that an earlier call has made."""
        runs: dict[str | None, Run] = {}
        condition, token = f"tags.`{JOB}` = '{self._job.report['job']}'", None
        while True:
            page = self._client.search_runs(
                [self._experiment], condition, max_results=_MOST_RUNS, page_token=token
            )
            for run in page:
                runs.setdefault(run.data.tags.get(GOAL), run)
            token = page.token
            if not token:
                return runs

    def _run(
        self, known: Run | None, name: str, goal_id: str | None, tags: Mapping[str, str]
    ) -> tuple[Run, str]:
        """Return the run of a goal, or of the job, with its tags; it is made if it is not known."""
        if known is None:
            began = self._timeline(goal_id).began or self._job.report.get("created_unix_ms")
            set_tags = {key: value for key, value in tags.items() if value}
            known = self._client.create_run(self._experiment, start_time=began, tags=set_tags, run_name=name)
            return known, known.info.run_id
        run_id, earlier = known.info.run_id, known.data.tags
        if known.info.run_name != name:
            self._client.update_run(run_id, name=name)
        changed = [RunTag(key, value) for key, value in tags.items() if earlier.get(key, "") != value]
        for some in _parts(changed, _MOST_OTHERS):
            self._client.log_batch(run_id, tags=some)
        return known, run_id

    def _artifacts(self) -> Iterator[tuple[str, str]]:
        yield REPORT, json.dumps(self._job.report, indent=2)
        if self._job.page is not None:
            yield REPORT_PAGE, self._job.page
        if self._job.config is not None:
            yield _CONFIG, self._job.config

    def _log_params(self, run: Run, params: Mapping[str, str]) -> None:
        """Log new parameters; MLflow never changes one."""
        new = [Param(key, value) for key, value in params.items() if key not in run.data.params]
        for some in _parts(new, _MOST_OTHERS):
            self._client.log_batch(run.info.run_id, params=some)

    def _log_metrics(self, run: Run, metrics: Mapping[str, float]) -> None:
        """Log the metrics that have changed, as single figures."""
        now, known = int(time.time() * 1000), run.data.metrics
        changed = [Metric(key, value, now, 0) for key, value in metrics.items() if known.get(key) != value]
        self._log_values(run.info.run_id, changed)

    def _log_curve(self, run: Run, timeline: Timeline) -> None:
        """Log the points of a training curve that are new."""
        run_id, last = run.info.run_id, int(run.data.tags.get(_LAST_EVENT, 0))
        if timeline.last <= last:
            return
        self._log_values(run_id, [_metric(point) for point in timeline.points if point.sequence > last])
        self._client.set_tag(run_id, _LAST_EVENT, str(timeline.last))

    def _log_values(self, run_id: str, values: Sequence[Metric]) -> None:
        for some in _parts(values, _MOST_METRICS):
            self._client.log_batch(run_id, metrics=some)

    def _log_package(self, run_id: str, goal_id: str, package: PackageOrigin) -> None:
        """Log a package as a model unless it is already there; then remove the models of other packages."""
        models = self._client.search_logged_models(
            [self._experiment], filter_string=f"source_run_id = '{run_id}'"
        )
        own = [model for model in models if _MANIFEST in model.tags]  # others may have logged more
        current = {
            model.model_id
            for model in own
            if model.status == LoggedModelStatus.READY and model.tags[_MANIFEST] == package.digest
        }
        if not current:
            with package.provided() as directory:
                self._log_model(run_id, goal_id, package.digest, directory)
        for model in own:
            if model.model_id not in current:
                self._client.delete_logged_model(model.model_id)

    def _log_model(self, run_id: str, goal_id: str, digest: str, directory: Path) -> None:
        latency = Manifest.load(directory).latency
        tags = [
            RunTag("mistify.latency_machine", latency.machine),
            RunTag("mistify.latency_runtime", latency.runtime),
        ]
        self._client.log_batch(run_id, tags=tags)
        model = Model.log(
            None,
            flavor,
            name=PACKAGE,
            run_id=run_id,
            tags={_MANIFEST: digest, JOB: self._job.report["job"], GOAL: goal_id},
            package=directory,
        )
        self._on_model(goal_id, model.model_uri)

    def _set_status(self, run: Run, state: str, timeline: Timeline) -> None:
        run_id, status = run.info.run_id, RunStatus.to_string(STATUS[state])
        if not RunStatus.is_terminated(STATUS[state]):
            self._client.update_run(run_id, status=status)
        elif run.info.status != status or timeline.ended not in (None, run.info.end_time):
            self._client.set_terminated(run_id, status, timeline.ended)

    def _timeline(self, goal_id: str | None) -> Timeline:
        return self._timelines.get(goal_id, Timeline())


def _experiment(client: MlflowClient, name: str) -> str:
    """Return the id of an experiment, which is created if it does not exist."""
    known = client.get_experiment_by_name(name)
    if known is None:
        return str(client.create_experiment(name))
    if known.lifecycle_stage != "active":
        raise MistifyError(
            ErrorCode.NOT_FOUND,
            f'the experiment "{name}" is deleted in MLflow; restore it there, or give another --experiment',
        )
    return str(known.experiment_id)


def _durations(report: Mapping[str, Any]) -> dict[str | None, Timeline]:
    """Return timelines of a job without events: all work begins with the job."""
    began = report.get("created_unix_ms")
    if began is None:  # written by an earlier version
        return {}
    parts: dict[str | None, Any] = {None: report, **{goal["id"]: goal for goal in report["goals"]}}
    return {
        goal_id: Timeline(began, began + round(1_000 * part["seconds"])) for goal_id, part in parts.items()
    }


def _metric(point: CurvePoint) -> Metric:
    return Metric(metric_name(point.name), point.value, point.unix_ms, point.step)


def _parts(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    return (values[first : first + most] for first in range(0, len(values), most))


def shown(uri: str, text: str | None = None) -> str:
    """Return the URI of a tracking server, or a text about it, without the password in it."""
    parts, text = urlsplit(uri), uri if text is None else text
    return text if parts.password is None else text.replace(f"{parts.username}:{parts.password}@", "")


def _check_database(uri: str) -> None:
    """Refuse a directory as a database, which MLflow tries to open for 100 seconds."""
    parts = urlsplit(uri)
    name = parts.path.removeprefix("/")
    if parts.scheme.partition("+")[0] == "sqlite" and name and Path(name).is_dir():
        hint = f"give a file in it, such as {uri.rstrip('/')}/mlflow.db"
        raise MistifyError(ErrorCode.INVALID_CONFIG, f"MLflow's database {name} is a directory; {hint}")


@contextmanager
def _translated(uri: str) -> Iterator[None]:
    """Report the failures of MLflow as a `MistifyError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"MLflow needs {error.name} for {shown(uri)}, which is not installed: pip install mlflow"
        raise MistifyError(ErrorCode.UNAVAILABLE, message) from error
    except (MlflowException, RequestException) as error:
        raise _unavailable(uri, error) from error
    except Exception as error:
        if not type(error).__module__.startswith("sqlalchemy."):  # which may not be installed
            raise
        raise _unavailable(uri, error) from error


def _unavailable(uri: str, error: Exception) -> MistifyError:
    return MistifyError(ErrorCode.UNAVAILABLE, f"MLflow at {shown(uri)}: {shown(uri, str(error))}")
