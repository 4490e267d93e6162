"""What a worker records of its activities."""

from itertools import count

import pytest

from executors.timing import activity, collect_timings, observed
from mistify_server.engines.worker_spans import finished_span
from mistify_server.tasks.periods import WorkerSpan
from mistify_server.worker.periods import PeriodRecorder


def test_nested_activities_are_recorded_in_each_other() -> None:
    recorder = PeriodRecorder(clock=count(0, 10).__next__)
    with observed(recorder.activity), collect_timings(), activity("other"):
        with activity("training"):
            with activity("tracing"):
                pass
            with activity("measuring"):
                pass
        with activity("saving"):
            pass
    span = recorder.span()
    periods = [(each.activity, each.began_ns, each.ended_ns, each.within) for each in span.periods]
    assert periods == [
        ("training", 10, 60, None),
        ("tracing", 20, 30, 0),
        ("measuring", 40, 50, 0),
        ("saving", 70, 80, None),
    ]
    assert (span.began_ns, span.ended_ns) == (0, 90)


def test_an_interrupted_activity_has_failed() -> None:
    recorder = PeriodRecorder()
    with observed(recorder.activity), activity("other"):
        with activity("loading"):
            pass
        with pytest.raises(ZeroDivisionError), activity("training"):
            raise ZeroDivisionError
    assert [(each.activity, each.failed) for each in recorder.span().periods] == [
        ("loading", False),
        ("training", True),
    ]


def test_periods_beyond_a_number_are_counted() -> None:
    recorder = PeriodRecorder(most=2)
    with observed(recorder.activity), activity("other"):
        for _ in range(3):
            with activity("training"), activity("tracing"):
                pass
    span = recorder.span()
    assert ([each.activity for each in span.periods], span.left_out) == (["training", "tracing"], 4)


def test_nothing_is_recorded_outside() -> None:
    recorder = PeriodRecorder()
    with observed(recorder.activity):
        pass
    with activity("other"), activity("training"):
        pass
    assert recorder.span().periods == ()


def test_the_span_of_a_worker_has_its_periods_as_a_tree() -> None:
    recorder = PeriodRecorder(clock=count(0).__next__)
    with observed(recorder.activity), activity("other"), activity("training"), activity("tracing"):
        pass
    work = WorkerSpan.model_validate_json(recorder.span().model_dump_json())
    span = finished_span(work, "no memory")
    (training,) = span.children
    (tracing,) = training.children
    assert (span.name, span.error, span.attributes["process.pid"]) == ("worker", "no memory", work.pid)
    assert (training.name, tracing.name, tracing.children) == ("training", "tracing", [])
    assert (training.began_ns, tracing.began_ns, tracing.ended_ns, training.ended_ns) == (1, 2, 3, 4)
