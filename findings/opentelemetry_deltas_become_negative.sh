#!/usr/bin/env bash
# OpenTelemetry SDK 1.45.2 exports negative increases of a counter, if what it observes begins anew at zero.
#
# Expected: a sum that is marked as monotonic never falls. Its data model says so for deltas as well, and demands that a
# reset begins a new stream with a new start time; Prometheus's rate() takes a fall for a reset, so that requests after
# it count.
# Observed: with delta temporality, which several vendors and MLOps stacks prefer, an observable counter whose count
# falls from 100 to 7 since its source, such as another process or a device, has restarted is exported as -93, with
# `is_monotonic` and the start time of the last collection. A back end that adds up deltas loses the 93, and one that
# checks for monotonic sums drops the point. The counter itself refuses negative increments with a warning; here is
# none.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet opentelemetry-sdk==1.45.2
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import logging
from importlib.metadata import version

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader

print("opentelemetry-sdk", version("opentelemetry-sdk"))
messages = []
handler = logging.Handler()
handler.emit = messages.append
logging.getLogger().addHandler(handler)

counts = [40, 100, 7, 12]
for temporality in (AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA):
    reader = InMemoryMetricReader(preferred_temporality={ObservableCounter: temporality})
    provider = MeterProvider([reader])
    remaining = iter(counts)
    provider.get_meter("meter").create_observable_counter("requests", [lambda _: [Observation(next(remaining))]])
    points = []
    for _ in counts:
        (resource,) = reader.get_metrics_data().resource_metrics
        sums = resource.scope_metrics[0].metrics[0].data
        assert sums.is_monotonic
        points.append(sums.data_points[0])
    values = [point.value for point in points]
    print(f"{temporality.name}: counts {counts} become {values}")
    starts = [point.start_time_unix_nano for point in points]
    if temporality is AggregationTemporality.DELTA:
        assert values == [40, 60, -93, 5]
        assert starts[2] == points[1].time_unix_nano
    else:
        assert values == counts
assert not messages
PYTHON
