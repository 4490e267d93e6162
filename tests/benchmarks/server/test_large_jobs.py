"""Waiting times of another caller are measured while a call is timed."""

from types import SimpleNamespace

import pytest

from benchmarks.server import large_jobs
from benchmarks.server.large_jobs import CallTimer


@pytest.fixture
def asked(monkeypatch):
    """Record events in order: every request of the other caller, and entries added by tests."""
    events = []

    class FakeClient:
        def __init__(self, address):
            events.append("connected")

        def __enter__(self):
            return self

        def __exit__(self, *error):
            events.append("closed")

        def job(self, job_id):
            events.append(job_id)
            if job_id == "refused" and events.count(job_id) > 1:  # not while it connects
                raise ConnectionError(job_id)

    monkeypatch.setattr(large_jobs, "PortingClient", FakeClient)
    return events


def call_timer(job):
    server = SimpleNamespace(address="", processor_seconds=lambda: 0.0, memory_mb=lambda: 1.0)
    return CallTimer(server, job)


def test_the_other_caller_connects_before_a_call_and_sends_requests_during_it(asked):
    timer = call_timer("small")

    timer.time("nothing", lambda: asked.append("call"))

    assert asked[:2] == ["connected", "small"]
    assert "small" in asked[asked.index("call") :]
    assert asked[-1] == "closed"
    assert timer.longest_other > 0


def test_an_error_of_the_other_caller_fails_the_measurement(asked):
    with pytest.raises(ConnectionError):
        call_timer("refused").time("nothing", lambda: None)


def test_an_error_of_the_call_ends_the_other_caller(asked):
    with pytest.raises(ZeroDivisionError):
        call_timer("small").time("nothing", lambda: 1 / 0)

    assert asked[-1] == "closed"
