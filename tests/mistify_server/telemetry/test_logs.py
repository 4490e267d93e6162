"""Logs: a JSON line for each event with its context, and without confidential data."""

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from mistify_server.telemetry.logs import LogFormat, log_handler
from tests.support.servers import SERVE, server
from tests.support.tokens import write_token

Config = Callable[..., dict[str, object]]

TOKEN = "0123456789abcdef" * 4


class Log:
    """The log of a server in a given format."""

    def __init__(self) -> None:
        self.text = io.StringIO()

    def lines(self, **about: object) -> list[dict[str, Any]]:
        """Return the lines with the given fields."""
        lines = [json.loads(line) for line in self.text.getvalue().splitlines()]
        return [line for line in lines if about.items() <= line.items()]


@pytest.fixture
def written(request: pytest.FixtureRequest) -> Iterator[Log]:
    log = Log()
    handler = log_handler(getattr(request, "param", LogFormat.JSON), log.text)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield log
    root.removeHandler(handler)
    root.setLevel(before)


async def test_each_line_states_its_context(written: Log, caller: Any, make_config: Config) -> None:
    job = await caller.submit([make_config("half", FLOP="0.5x"), make_config("small", FLOP="0.2x")])
    await caller.events(job.id)
    assert all({"time", "level", "event"} <= line.keys() for line in written.lines())
    of_job = [line["event"] for line in written.lines(job=job.id)]
    assert (of_job[0], of_job[-1]) == ("a job was submitted", "the job is done")
    # The looser goal is adapted first, and the other one starts from it.
    edges = written.lines(job=job.id, event="the edge is adapted")
    assert [(line["goal"], line["edge"], line["steps"]) for line in edges] == [
        ("half", "0/0", 100),
        ("small", "0/1", 100),
    ]
    assert [line["goal"] for line in written.lines(event="the goal is met")] == ["half", "small"]
    assert written.lines(event="a worker has started", worker="worker-0")


async def test_lines_of_traced_work_have_the_ids_of_its_trace(
    written: Log, site: Any, serving_at: Any, make_config: Config
) -> None:
    pytest.importorskip("opentelemetry.exporter")
    from tests.support.collectors import http_collector

    with http_collector() as collector:
        async with serving_at(site.settings(traces=collector.url)) as caller:
            job = await caller.submit([make_config("half", FLOP="0.5x")])
            await caller.events(job.id)
    of_job = [line for line in written.lines(job=job.id) if line["event"] != "a job was submitted"]
    assert {line["trace_id"] for line in written.lines(job=job.id)} == {collector.root().trace_id}
    spans = {span.span_id: span.name for span in collector.spans}
    places = [(line["event"], spans[line["span_id"]]) for line in of_job]
    assert {
        ("the job is running", "job"),
        ("the edge is adapted", "edge"),
        ("the goal is met", "package"),
    } <= {*places}
    assert "trace_id" not in written.lines(event="a worker has started")[0]


async def test_a_lost_worker_is_logged_with_its_job_and_goals(
    written: Log, caller: Any, make_config: Config, site: Any
) -> None:
    (site.control / "crash-adapt").write_text("3")
    job = await caller.submit([make_config("half", FLOP="0.5x")])
    await caller.events(job.id)
    lost = written.lines(level="warning", worker="worker-0", task="adapt")
    assert [(line["job"], line["goal"], line["edge"], line["attempt"]) for line in lost] == [
        (job.id, "half", "0/0", attempt) for attempt in (1, 2, 3)
    ]
    assert "SIGKILL" in lost[0]["event"]
    (failed,) = written.lines(job=job.id, goal="half", goals=1)
    assert failed["event"].startswith("goals have failed: ")


async def test_contents_of_configs_are_not_logged(
    written: Log, caller: Any, make_config: Config, site: Any
) -> None:
    site.write("hush-model.json", json.loads((site.root / "model.json").read_text()))
    job = await caller.submit([make_config("half", model="hush-model.json", FLOP="0.5x")])
    await caller.events(job.id)
    assert written.lines(job=job.id)
    for hidden in ("hush-model", "train.json", "0.5x"):
        assert hidden not in written.text.getvalue()


@pytest.mark.parametrize("written", LogFormat, indirect=True)
def test_tracebacks_do_not_contain_values(written: Log) -> None:
    token = TOKEN
    try:
        raise ValueError(len(token))
    except ValueError:
        logging.getLogger("mistify_server.test").exception("it failed", extra={"job": "a job"})
    assert "ValueError: 64" in written.text.getvalue()
    assert "a job" in written.text.getvalue()
    assert TOKEN not in written.text.getvalue()


def test_a_server_configured_for_json_writes_only_json(tmp_path: Path) -> None:
    token_file = write_token(tmp_path / "token", TOKEN)
    options = ("--log-format", "json", "--token-file", token_file, "--http", "127.0.0.1:0")
    with (tmp_path / "log").open("w") as log, server(tmp_path / "store", *options, log=log) as (address, _):
        pass
    text = (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert {"address": address, "event": "the server is ready", "level": "info"}.items() <= lines[0].items()
    assert TOKEN not in text


def test_lines_of_libraries_become_json_as_well(tmp_path: Path) -> None:
    talkative = {**os.environ, "GRPC_VERBOSITY": "DEBUG", "GRPC_TRACE": "http"}
    with (
        (tmp_path / "log").open("w") as log,
        server(tmp_path / "store", "--log-format", "json", log=log, environment=talkative) as (address, _),
        grpc.insecure_channel(address) as channel,
    ):
        grpc.channel_ready_future(channel).result(60)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert any("chttp2" in line["event"] for line in lines if line["level"] == "warning")


WRITING = """
import logging, sys
from mistify_server.telemetry.logs import LogFormat, set_up_log
set_up_log(LogFormat(sys.argv[1]))
for number in range(2_000):
    logging.warning("line %d", number)
    print(number)
"""


@pytest.mark.parametrize("log_format", LogFormat)
def test_a_log_on_a_full_disk_stops_nothing(log_format: LogFormat) -> None:
    """Errors of logging are written to standard error, which is the log."""
    with Path("/dev/full").open("w") as disk:
        command = [sys.executable, "-c", WRITING, log_format]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=disk, text=True, timeout=60, check=False
        )
    assert done.stdout.splitlines() == [str(number) for number in range(2_000)]


def test_the_reason_of_a_failed_start_is_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no directory")
    command = [*SERVE, "--store", str(tmp_path / "store"), "--listen", "127.0.0.1:0", "--log-format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"the store {tmp_path / 'store'} cannot be used" in json.loads(done.stderr)["event"]
