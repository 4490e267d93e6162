"""Tracking servers: a real one, and none."""

import re
import socket
import subprocess
import sys
from importlib.util import find_spec

import mlflow
import numpy as np
import pytest

from mistify.errors import ErrorCode
from mistify_client import load
from tests.mistify_client.mlflow.configs import CONFIG


@pytest.fixture
def tracking_server(tmp_path):
    """Start a tracking server, and return its URL."""
    if find_spec("flask") is None:
        pytest.skip("MLflow's server is not installed: pip install mlflow")
    database, files = f"sqlite:///{tmp_path / 'server.db'}", tmp_path / "files"
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database]
    command += ["--artifacts-destination", str(files), "--host", "127.0.0.1", "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if found := re.search(r"http://127\.0\.0\.1:[1-9]\d*", line):
                    yield found[0]
                    break
            else:
                pytest.fail("the tracking server has not started")
        finally:
            process.terminate()


@pytest.mark.slow
def test_a_job_is_written_to_a_server_and_its_package_runs_from_there(
    tracked, service, package, expected, tracking_server
):
    service.serve_package(package)
    service.fake.config = CONFIG
    tracked.uri = tracking_server
    for _ in range(2):
        result = tracked.write()
    runs = tracked.runs()
    page = f"{tracking_server}/#/experiments/{tracked.experiment_id}/runs/{runs[None].info.run_id}"
    assert result.stdout == f"MLflow: {page}\n"
    assert len(tracked.models()) == 1
    model = mlflow.pyfunc.load_model(f"runs:/{runs['half'].info.run_id}/package")
    assert np.array_equal(model.predict(expected["image"]), load(package)(expected["image"]))


def test_a_server_that_does_not_answer_is_reported(tracked, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as refusing:  # bound, so that nobody else listens there
        refusing.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{refusing.getsockname()[1]}"
        tracked.uri = f"http://ann:secret@{place}"
        result = tracked.write(code=ErrorCode.UNAVAILABLE.exit_code)
    assert f"MLflow at http://{place}: " in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite+pysqlite"])
def test_a_directory_is_no_database(tracked, tmp_path, scheme):
    tracked.uri = f"{scheme}:///{tmp_path}"
    result = tracked.write(code=ErrorCode.INVALID_CONFIG.exit_code)
    assert f"{tmp_path} is a directory; give a file in it, such as {tracked.uri}/mlflow.db" in result.stderr
