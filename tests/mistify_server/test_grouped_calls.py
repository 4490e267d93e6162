"""Calls that arrive together are answered together, each with its own answer or error."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.grouped_calls import GroupedCalls
from tests.support.gates import held

CALLER: ContextVar[str] = ContextVar("caller", default="nobody")


class Squares:
    """Answers with squares, and notes which numbers were asked together."""

    def __init__(self) -> None:
        self.groups: list[Sequence[int]] = []
        self.callers: list[str] = []

    def answer(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.groups.append(numbers)
        self.callers.append(CALLER.get())
        return [number * number if number >= 0 else ValueError(number) for number in numbers]


async def answers(calls: Any, numbers: Sequence[int]) -> list[Any]:
    return await asyncio.gather(*map(calls, numbers), return_exceptions=True)


async def test_calls_during_an_answer_share_the_next_ones() -> None:
    squares = Squares()
    with held(squares, "answer") as gate:
        calls: GroupedCalls[int, int] = GroupedCalls(squares.answer, most=3)
        first = asyncio.create_task(calls(1))
        await asyncio.to_thread(gate.reached.wait)
        others = asyncio.create_task(answers(calls, [2, -3, 4, 5]))
        await asyncio.sleep(0)
        gate.opened.set()
        assert await first == 1
        square, error, *rest = await others
    assert (square, rest) == (4, [16, 25])
    assert isinstance(error, ValueError)
    assert squares.groups == [[1], [2, -3, 4], [5]]


async def test_callers_of_a_group_may_call_again_together() -> None:
    squares, over = Squares(), asyncio.Event()
    calls: GroupedCalls[int, int] = GroupedCalls(squares.answer, sleep=lambda _seconds: over.wait())
    assert await answers(calls, [1, 2]) == [1, 4]
    third = asyncio.create_task(calls(3))
    await asyncio.sleep(0)
    fourth = asyncio.create_task(calls(4))
    await asyncio.sleep(0)
    over.set()
    assert await asyncio.gather(third, fourth) == [9, 16]
    assert squares.groups == [[1, 2], [3, 4]]


async def test_a_single_caller_never_waits_for_others() -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    calls: GroupedCalls[int, int] = GroupedCalls(Squares().answer, sleep=pause)
    assert [await calls(number) for number in (1, 2, 3)] == [1, 4, 9]
    assert pauses == []


async def test_answers_belong_to_no_caller() -> None:
    squares = Squares()
    CALLER.set("first")
    assert await GroupedCalls(squares.answer)(3) == 9
    assert squares.callers == ["nobody"]


async def test_a_call_that_nobody_waits_for_any_more_does_not_affect_the_others() -> None:
    squares = Squares()
    with held(squares, "answer") as gate:
        calls: GroupedCalls[int, int] = GroupedCalls(squares.answer)
        first, second = asyncio.create_task(calls(1)), asyncio.create_task(calls(2))
        await asyncio.to_thread(gate.reached.wait)
        first.cancel()
        gate.opened.set()
        assert await second == 4
    assert await calls(3) == 9


@pytest.mark.parametrize(
    ("code", "groups"),
    [(ErrorCode.UNAVAILABLE, [[1, 2, 3]]), (ErrorCode.INTERNAL, [[1, 2, 3], [1], [2], [3]])],
)
async def test_an_error_of_all_is_that_of_each_unless_it_is_an_outage(
    code: ErrorCode, groups: list[list[int]]
) -> None:
    asked_together = []

    def answer(numbers: Sequence[int]) -> list[int | Exception]:
        asked_together.append(numbers)
        if 2 in numbers:
            raise MistifyError(code, "none of them")
        return [*numbers]

    outcomes = await answers(GroupedCalls(answer), [1, 2, 3])
    alone = code is ErrorCode.INTERNAL
    assert [isinstance(each, MistifyError) for each in outcomes] == [not alone, True, not alone]
    assert asked_together == groups
