"""Trace contexts, by OpenTelemetry's own reader."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mistify_server.tracing.context import TraceContext, current_traceparent, within

HEX = st.sampled_from("0123456789abcdef")


@given(
    st.one_of(
        st.text(),
        st.tuples(
            st.sampled_from(["00", "ff", "0"]),
            st.one_of(st.text(HEX, min_size=32, max_size=32), st.just("0" * 32)),
            st.one_of(st.text(HEX, min_size=16, max_size=16), st.just("0" * 16)),
            st.text(HEX, min_size=2, max_size=2),
        ).map("-".join),
    )
)
def test_contexts_are_read_as_by_opentelemetry(text: str) -> None:
    theirs = trace.get_current_span(
        TraceContextTextMapPropagator().extract({"traceparent": text})
    ).get_span_context()
    own = TraceContext.parse(text)
    assert (own is not None) == theirs.is_valid
    if own is not None:
        assert (int(own.trace_id, 16), int(own.span_id, 16)) == (theirs.trace_id, theirs.span_id)
        assert own.sampled == theirs.trace_flags.sampled
        assert TraceContext.parse(str(own)) == own


async def test_tasks_keep_the_position_in_which_they_were_made() -> None:
    async def position() -> str:
        await asyncio.sleep(0)
        return current_traceparent()

    with within("a"):
        first = asyncio.create_task(position())
        with within("b"):
            second = asyncio.create_task(position())
        assert current_traceparent() == "a"
    assert (await first, await second, current_traceparent()) == ("a", "b", "")
