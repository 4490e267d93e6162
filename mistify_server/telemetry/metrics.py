"""Prometheus metrics of a running server: counts and durations."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, ProcessCollector

#: Histogram buckets in seconds: from a page view to the submission of a large job. Event streams exceed them
#: all.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """The metrics of one server, in a separate registry, because a process may have several servers.

    No label has a value that a caller can choose freely.

    Attributes:
        registry: The registry that holds all metrics.
        calls: Durations of RPCs in seconds, by method and status.
        requests: Durations of HTTP requests in seconds, by method, route and status.
        tasks: Number of finished tasks, by kind and outcome.
        activities: Seconds spent in tasks, by activity.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.calls = Histogram(
            "mistify_rpc_seconds",
            "RPCs, from start to last message",
            ("method", "code"),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.requests = Histogram(
            "mistify_http_request_seconds",
            "HTTP requests, from start to the last byte of the response",
            ("method", "route", "status"),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.tasks = Counter(
            "mistify_tasks",
            "Finished tasks; a task of the kind adapt is an edge of a goal tree",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self.activities = Counter(
            "mistify_activity_seconds",
            "Seconds spent in tasks, by activity",
            ("activity",),
            registry=self.registry,
        )
