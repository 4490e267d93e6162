"""Counts and times of a running server, in the form that Prometheus reads."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, ProcessCollector

#: Seconds: from a page to the submission of a large job. Streams of events are longer than any.
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Metrics:
    """The metrics of one server, in a registry of their own, since a process may have several servers.

    No label has a value that a caller can make up.

    Attributes:
        registry: The registry that holds all metrics.
        calls: Seconds of RPCs, by method and status.
        requests: Seconds of HTTP requests, by method, route and status.
        tasks: Tasks that have ended, by kind and outcome.
        activities: Seconds of tasks, by activity.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.calls = Histogram(
            "mistify_rpc_seconds",
            "RPCs, from their beginning to their last message",
            ("method", "code"),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.requests = Histogram(
            "mistify_http_request_seconds",
            "HTTP requests, from their beginning to the last byte of the answer",
            ("method", "route", "status"),
            registry=self.registry,
            buckets=_SECONDS,
        )
        self.tasks = Counter(
            "mistify_tasks",
            "Tasks that have ended; one of the kind adapt is an edge of a goal tree",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self.activities = Counter(
            "mistify_activity_seconds",
            "Seconds of tasks, by what was done in them",
            ("activity",),
            registry=self.registry,
        )
