"""Wrong user input: the command line and gRPC report every problem, and nothing is started."""

import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from typer.testing import CliRunner

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import Job
from mistify_client.cli.main import app
from mistify_client.rpc.porting import PortingClient
from mistify_server.store.directory import open_store
from tests.end_to_end.bad_input import CONFIGS, DATA, MODELS, ExpectedProblem, config, data
from tests.executors.inspection.corpus import write_corpus
from tests.executors.inspection.networks import save_good_model
from tests.support.servers import SERVE, server
from tests.support.wrong_files import write_data, write_models


@dataclass(frozen=True)
class Site:
    """A running server, and a directory with models and data below its root."""

    base: Path
    address: str
    pid: int

    @property
    def root(self) -> Path:
        return self.base / "root"

    def outside(self) -> str:
        return str(self.base / "outside.npz")


@contextmanager
def site_of(base: Path) -> Iterator[Site]:
    with (
        (base / "log").open("w") as log,
        server(base / "store", "--data-root", base / "root", log=log) as (address, process),
    ):
        yield Site(base, address, process.pid)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    base = tmp_path_factory.mktemp("bad-input")
    (base / "root").mkdir()
    write_models(base / "root")
    write_data(base / "root")
    (base / "root" / "test.npz").rename(base / "outside.npz")
    np.savez(base / "root" / "test.npz", **dict(np.load(base / "outside.npz")))
    (base / "root" / "link.npz").symlink_to(base / "outside.npz")
    with site_of(base) as running:
        yield running


@pytest.fixture
def mistify(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    for name in ("MISTIFY_SERVER", "MISTIFY_DATA_ROOT"):
        monkeypatch.delenv(name, raising=False)
    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])


def refused(
    site: Site, mistify: Callable[..., Any], out: Path, text: str, *problems: ExpectedProblem
) -> MistifyError:
    """Assert that the command and its call report exactly these problems, and start nothing."""
    out.mkdir()
    (out.parent / "goals.json").write_text(text)
    with errors_of_calls() as errors, PortingClient(site.address) as client:
        result = mistify("port", out.parent / "goals.json", "--out", out, "--server", site.address)
        if not errors:  # the command refused the text without calling the server
            with suppress(MistifyError):
                client.submit(text, "key")
        assert list(client.jobs()) == []
    assert result.exit_code == 2, result.output
    assert list(out.iterdir()) == []
    (error,) = errors
    by_command = [line for line in result.output.splitlines() if "; expected " in line]
    for lines in (by_command, list(map(str, error.problems))):
        assert len(lines) == len(problems), lines
        for problem, line in zip(problems, lines, strict=True):
            assert problem.matches(line), line
    assert "Traceback" not in result.output
    return error


@contextmanager
def errors_of_calls() -> Iterator[list[MistifyError]]:
    """Yield a list of the errors of all submissions, which inspect model and data."""
    errors, submit = [], PortingClient.submit

    def noting(*arguments: Any, **options: Any) -> Job:
        try:
            return submit(*arguments, **options)
        except MistifyError as error:
            errors.append(error)
            raise

    with patch.object(PortingClient, "submit", noting):
        yield errors


@pytest.mark.parametrize("name", CONFIGS)
def test_mistakes_in_configs_are_reported(site: Site, mistify: Any, tmp_path: Path, name: str) -> None:
    wrong, problem = CONFIGS[name]
    error = refused(site, mistify, tmp_path / "out", json.dumps([wrong]), problem)
    assert error.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("name", MODELS)
def test_unusable_models_are_reported(site: Site, mistify: Any, tmp_path: Path, name: str) -> None:
    error = refused(site, mistify, tmp_path / "out", json.dumps([config(model=name)]), MODELS[name])
    assert error.code is ErrorCode.INVALID_MODEL


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("name", DATA)
def test_unusable_data_is_reported(site: Site, mistify: Any, tmp_path: Path, name: str, part: str) -> None:
    file = name.format(base=site.base)
    problem = ExpectedProblem(f"[0].dataset.{part}", *DATA[name])
    error = refused(site, mistify, tmp_path / "out", json.dumps([data(part, file)]), problem)
    assert error.code is ErrorCode.INVALID_DATASET


@pytest.mark.parametrize("text", ['[{"id": "half",', "", "goals", "[1", '{"id": "a", "id": "b"}', "[]"])
def test_broken_json_is_reported(site: Site, mistify: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "goals.json").write_text(text)
    result = mistify("port", tmp_path / "goals.json", "--out", tmp_path / "out", "--server", site.address)
    assert result.exit_code == 2
    assert "goals.json: " in result.output
    assert "; expected " in result.output
    assert not (tmp_path / "out").exists()
    with PortingClient(site.address) as client, pytest.raises(MistifyError) as raised:
        client.submit(text, "key")
    assert raised.value.code is ErrorCode.INVALID_CONFIG
    assert raised.value.problems


def test_all_problems_of_a_config_are_reported_at_once(site: Site, mistify: Any, tmp_path: Path) -> None:
    wrong = [
        config(adaptation_goal={"FLOP": "5Q"}, colour="red"),
        config(id="HALF"),
        config(id="third", dataset={"train": None}),
    ]
    problems = [
        ExpectedProblem("[0].adaptation_goal.FLOP", '"5Q"', "", ""),
        ExpectedProblem("[0].colour", '"colour"', "one of", ""),
        ExpectedProblem("[2].dataset.train", "nothing", "", ""),
        ExpectedProblem("[1].id", '"HALF"', "different from that of [0]", "rename"),
    ]
    refused(site, mistify, tmp_path / "out", json.dumps(wrong), *problems)


def test_all_problems_found_without_a_worker_are_reported_at_once(
    site: Site, mistify: Any, tmp_path: Path
) -> None:
    wrong = [
        config(algorithm={"name": "morfnet", "config": {"cuts": 0, "thresold": 1}}, colour="red"),
        config(id="HALF", model="none.keras", hardware="toaster"),
        config(id="third", model="nine.keras", dataset={"train": "none.npz"}),
    ]
    problems = [
        ExpectedProblem("[0].colour", '"colour"', "one of", ""),
        ExpectedProblem("[1].id", '"HALF"', "different from that of [0]", "rename"),
        ExpectedProblem("[0].algorithm.name", '"morfnet"', "", 'did you mean "morphnet"?'),
        ExpectedProblem("[0].algorithm.config.cuts", "0", "", ""),
        ExpectedProblem("[0].algorithm.config.thresold", "", "", "did you mean"),
        ExpectedProblem("[1].hardware", '"toaster"', "", ""),
        ExpectedProblem("[1].model", '"none.keras"', "", ""),
        ExpectedProblem("[2].model", '"nine.keras"', "", ""),
        ExpectedProblem("[2].dataset.train", '"none.npz"', "", ""),
    ]
    refused(site, mistify, tmp_path / "out", json.dumps(wrong), *problems)


def test_all_problems_of_models_data_and_limits_are_reported_at_once(
    site: Site, mistify: Any, tmp_path: Path
) -> None:
    wrong = [
        config(
            dataset={"train": "nan.npz", "test": "range.npz"},
            adaptation_goal={"FLOP": "0.0001x"},
        ),
        config(id="other", model="notes.txt"),
    ]
    problems = [
        ExpectedProblem("[0].dataset.test", "y[5] = 3", "", ""),
        ExpectedProblem("[0].dataset.train", "NaN", "", ""),
        ExpectedProblem("[1].model", "notes.txt", "", ""),
        ExpectedProblem("[0].adaptation_goal.FLOP", "0.0001x", "", ""),
    ]
    error = refused(site, mistify, tmp_path / "out", json.dumps(wrong), *problems)
    assert error.code is ErrorCode.INVALID_CONFIG


@pytest.mark.slow
def test_a_thousand_problems_arrive(site: Site, mistify: Any, tmp_path: Path) -> None:
    wrong = [config(id=f"goal-{number}", model=f"model-{number}.keras") for number in range(1000)]
    problems = [
        ExpectedProblem(f"[{number}].model", f"model-{number}.keras", "", "") for number in range(1000)
    ]
    refused(site, mistify, tmp_path / "out", json.dumps(wrong), *problems)


def test_an_embedded_server_reports_the_same(mistify: Any, site: Site, tmp_path: Path) -> None:
    goals = site.root / "goals.json"
    goals.write_text(json.dumps([config(model="tinny.keras")]))
    result = mistify("port", goals, "--out", tmp_path / "out", "--store", tmp_path / "store")
    assert result.exit_code == 2, result.output
    assert any(MODELS["tinny.keras"].matches(line) for line in result.output.splitlines())
    assert list((tmp_path / "out").iterdir()) == []


def test_a_store_of_a_newer_version_is_refused(mistify: Any, site: Site, tmp_path: Path) -> None:
    with open_store(tmp_path / "store"):
        pass
    with sqlite3.connect(tmp_path / "store" / "mistify.db") as connection:
        connection.execute("UPDATE meta SET value = '99'")
    goals = tmp_path / "goals.json"
    goals.write_text(json.dumps([config()]))
    result = mistify("port", goals, "--out", tmp_path / "out", "--store", tmp_path / "store")
    assert result.exit_code == ErrorCode.STORE_VERSION.exit_code, result.output
    assert "schema is 99" in result.output
    assert "Traceback" not in result.output
    assert list((tmp_path / "out").iterdir()) == []


def test_a_port_in_use_is_refused(site: Site, tmp_path: Path) -> None:
    command = [*SERVE, "--store", tmp_path / "store"]
    ended = subprocess.run(
        [*command, "--listen", site.address], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == ErrorCode.ADDRESS_IN_USE.exit_code
    assert (
        f"error: the address {site.address} is in use by another program; stop that program" in ended.stderr
    )
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_malformed_models_do_not_affect_the_server(site: Site) -> None:
    (site.root / "malformed").mkdir()
    corpus = write_corpus(save_good_model(site.base), site.root / "malformed")
    with PortingClient(site.address) as client:
        for name, (path, text) in corpus.items():
            if path.is_symlink() or path.is_fifo():
                continue  # no file below a data root
            with pytest.raises(MistifyError) as raised:
                client.submit(json.dumps([config(model=f"malformed/{name}")]), name)
            assert raised.value.code is ErrorCode.INVALID_MODEL
            (problem,) = raised.value.problems
            assert text in problem.value
        assert list(client.jobs()) == []
        job = client.submit(json.dumps([config()]), "after them")
        assert client.cancel(job.id).id == job.id
        client.remove(job.id)
    assert peak_memory(site.pid) < 400


def peak_memory(pid: int) -> int:
    """Return the peak memory of a process in mebibytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:"))


def test_a_valid_config_is_accepted(site: Site, mistify: Any, tmp_path: Path) -> None:
    with PortingClient(site.address) as client:
        job = client.submit(json.dumps([config()]), "right")
        assert client.cancel(job.id).id == job.id
        client.remove(job.id)
