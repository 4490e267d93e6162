"""Whether a server records traces, and where it sends them."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.config import load_config
from mistify_server.tracing.opening import open_traces
from mistify_server.tracing.traces import NO_TRACES
from tests.support.collectors import Collector

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


async def names(collector: Collector, address: str | None) -> list[str]:
    """Return the spans that arrive from a call."""
    async with open_traces(address) as traces:
        with traces.call("a call", "", {}):
            pass
    return [span.name for span in collector.spans]


async def test_without_a_collector_nothing_is_recorded() -> None:
    async with open_traces() as traces:
        assert traces is NO_TRACES


@pytest.mark.parametrize("path", ["", "/", "/v1/traces"])
async def test_spans_go_to_the_collector_of_the_setting(collector: Collector, path: str) -> None:
    assert await names(collector, f"{collector.url}{path}") == ["a call"]


async def test_the_setting_takes_precedence_over_the_environment(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:1")
    assert await names(collector, collector.url) == ["a call"]


@pytest.mark.parametrize("variable", [ENDPOINT, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
async def test_the_environment_names_a_collector(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, f"{collector.url}/v1/traces" if "TRACES" in variable else collector.url)
    assert await names(collector, None) == ["a call"]


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")]
)
async def test_the_environment_turns_traces_off(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert await names(collector, collector.url) == []


async def test_samplers_of_the_environment_apply(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    assert await names(collector, collector.url) == []


async def test_an_unknown_protocol_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    with pytest.raises(MistifyError, match='OTEL_EXPORTER_OTLP_PROTOCOL: got "http/json"; expected grpc or'):
        async with open_traces("http://127.0.0.1:4318"):
            pass


@pytest.fixture
def _without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mistify_server.tracing.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)


@pytest.mark.usefixtures("_without_opentelemetry")
async def test_the_setting_needs_the_libraries() -> None:
    with pytest.raises(MistifyError, match=r"pip install 'mistify-porting\[telemetry\]'") as raised:
        async with open_traces("http://127.0.0.1:4318"):
            pass
    assert raised.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.usefixtures("_without_opentelemetry")
async def test_variables_for_other_programs_do_not_need_the_libraries(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:4318")
    with caplog.at_level(logging.WARNING):
        async with open_traces() as traces:
            assert not traces.enabled
    assert "traces need opentelemetry" in caplog.text


@pytest.mark.parametrize("address", ["127.0.0.1:4318", "ftp://host", "http://"])
def test_an_invalid_address_is_reported(tmp_path: Path, address: str) -> None:
    with pytest.raises(MistifyError, match=f'--traces: got "{address}"; expected the URL of a collector'):
        load_config(None, {"store": tmp_path, "traces": address})


def test_without_traces_neither_the_sdk_nor_exporters_are_imported() -> None:
    """FastAPI imports the interface of OpenTelemetry if it is installed."""
    modules = "mistify_server.server, mistify_server.web.app, mistify_server.worker.loop, mistify_server.cli"
    heavy = "('opentelemetry.sdk', 'opentelemetry.exporter', 'opentelemetry.proto')"
    script = f"import sys, {modules}\nprint([name for name in sys.modules if name.startswith({heavy})])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
