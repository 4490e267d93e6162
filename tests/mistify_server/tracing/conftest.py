"""Collectors of traces."""

from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.exporter", reason="OpenTelemetry is not installed")

from tests.support.collectors import Collector, http_collector

#: A trace context as a caller sends it: its trace and its span are recorded.
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(autouse=True)
def _own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of OpenTelemetry."""
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "PROTOCOL", "TRACES_PROTOCOL"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with http_collector() as opened:
        yield opened
