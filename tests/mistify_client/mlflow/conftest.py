"""Databases and servers of MLflow."""

from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("mlflow", reason="MLflow is not installed")
pytest.importorskip("alembic", reason="MLflow's database needs alembic")

from mlflow import MlflowClient
from mlflow.entities import Run

from tests.mistify_client.cli.conftest import mistify

__all__ = ["mistify"]


@pytest.fixture(scope="session")
def database(tmp_path_factory) -> str:
    """Return the URI of a database, which takes seconds to make: each test has an experiment of its own."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture
def uri(database, tmp_path, monkeypatch) -> str:
    """Return the URI of the database; MLflow keeps artifacts below the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    return database


@dataclass
class Tracked:
    """An experiment of this test, into which the job of the service is written."""

    mistify: Any
    address: str
    uri: str
    experiment: str

    def write(self, *arguments, code=0):
        """Write the job, or that of other arguments, and return the result of the command."""
        named = arguments or ("job-1", "--server", self.address)
        result = self.mistify("report", *named, "--mlflow", self.uri, "--experiment", self.experiment)
        assert result.exit_code == code, result.output
        return result

    def runs(self) -> dict[str | None, Run]:
        """Return the runs of the goals, and that of the job (None), each once."""
        runs = self.client.search_runs([self.experiment_id])
        by_goal = {run.data.tags.get("mistify.goal"): run for run in runs}
        assert len(by_goal) == len(runs)
        return by_goal

    def models(self):
        return self.client.search_logged_models([self.experiment_id])

    def history(self, run, name):
        """Return steps, values and times of a metric."""
        points = self.client.get_metric_history(run.info.run_id, name)
        return [(point.step, point.value, point.timestamp) for point in points]

    @property
    def client(self) -> MlflowClient:
        return MlflowClient(self.uri)

    @property
    def experiment_id(self):
        return self.client.get_experiment_by_name(self.experiment).experiment_id


@pytest.fixture
def tracked(mistify, service, uri, tmp_path) -> Tracked:
    return Tracked(mistify, service.address, uri, tmp_path.name)
