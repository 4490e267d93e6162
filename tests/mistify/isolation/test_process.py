"""Calls in a separate process, which may die without affecting the caller."""

import os
import select
import signal
from collections.abc import Callable, Iterator

import pytest

from mistify.isolation.process import DisposableProcess, ProcessEndedError


@pytest.fixture
def process() -> Iterator[DisposableProcess]:
    process = DisposableProcess()
    yield process
    process.close()


def counted(most: int, report: Callable[[int], object]) -> int:
    for number in range(most):
        report(number)
    return most


def die_at(number: int, report: Callable[[int], object]) -> None:
    report(number)
    os.abort()


def test_all_calls_run_in_one_separate_process(process: DisposableProcess) -> None:
    first = process.call(os.getpid)
    assert first != os.getpid()
    assert process.call(os.getpid) == first
    assert process.call(divmod, 17, 5) == (3, 2)


def test_a_process_that_was_started_ahead_serves_the_calls(process: DisposableProcess) -> None:
    process.start()
    assert process._started is not None
    child, _ = process._started
    process.start()
    assert process.call(os.getpid) == child.pid


def test_reports_of_a_function_arrive_before_its_result(process: DisposableProcess) -> None:
    reports: list[int] = []
    assert process.call_reporting(counted, 3, on_report=reports.append) == 3
    assert reports == [0, 1, 2]


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV"])
def test_the_death_of_the_process_raises_an_exception(process: DisposableProcess, name: str) -> None:
    first = process.call(os.getpid)
    with pytest.raises(ProcessEndedError, match=f"by signal {name}"):
        process.call(signal.raise_signal, signal.Signals[name])
    assert process.call(os.getpid) not in (first, os.getpid())


def test_reports_made_before_the_process_dies_arrive(process: DisposableProcess) -> None:
    reports: list[int] = []
    with pytest.raises(ProcessEndedError, match="SIGABRT"):
        process.call_reporting(die_at, 7, on_report=reports.append)
    assert reports == [7]


def test_an_exit_code_is_reported(process: DisposableProcess) -> None:
    with pytest.raises(ProcessEndedError, match="with exit code 3"):
        process.call(os._exit, 3)


def test_a_killed_process_counts_as_out_of_memory(process: DisposableProcess) -> None:
    with pytest.raises(MemoryError):
        process.call(signal.raise_signal, signal.SIGKILL)


def test_an_exception_is_passed_on_and_the_process_replaced(process: DisposableProcess) -> None:
    first = process.call(os.getpid)
    with pytest.raises(ZeroDivisionError):
        process.call(divmod, 1, 0)
    assert process.call(os.getpid) != first


def test_an_interrupted_call_ends_the_process(process: DisposableProcess) -> None:
    def interrupt(number: int) -> None:
        raise KeyboardInterrupt

    first = process.call(os.getpid)
    with pytest.raises(KeyboardInterrupt):
        process.call_reporting(counted, 10**9, on_report=interrupt)
    assert process.call(os.getpid) != first
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


def test_the_process_ends_with_its_parent() -> None:
    caller = DisposableProcess()
    ends = os.pidfd_open(caller.call(_pid_of_a_call))
    caller.close()
    assert select.select([ends], [], [], 60)[0]
    os.close(ends)


_nested = DisposableProcess()


def _pid_of_a_call() -> int:
    return _nested.call(os.getpid)


def test_the_process_imports_only_the_modules_of_its_functions(process: DisposableProcess) -> None:
    assert not {"tensorflow", "numpy", "pytest"} & process.call(eval, "set(__import__('sys').modules)")
