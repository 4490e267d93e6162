"""Whatever a config contains, it is read, or refused with the place, the value and what was expected."""

import pytest
from hypothesis import given, settings

from mistify.config.porting import PortingConfig
from mistify.config.reading import collective_batches, read_batch
from mistify.config.timing import with_time
from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.positions import lines_of
from mistify.wire.errors import error_metadata
from tests.support.efforts import with_effort
from tests.support.random_configs import CORPUS, texts


def is_refused(text: str, *, server_knows_more: bool) -> bool:
    """Read a text, check the result, and return whether it was refused."""
    with_time(text, "10min")
    try:
        reading = read_batch(text, server_knows_more=server_knows_more)
        configs = reading.checked()
    except MistifyError as error:
        check_refusal(text, error)
        return True
    for config in configs:
        assert PortingConfig.model_validate_json(config.model_dump_json(exclude_unset=True)) == config
        assert config.limits() or server_knows_more
    collective_batches(configs)
    return False


def check_refusal(text: str, error: MistifyError) -> None:
    assert error.code is ErrorCode.INVALID_CONFIG
    assert error.problems
    for problem in error.problems:
        assert all((problem.place, problem.value, problem.expected, problem.fix)), problem
    str(error).encode()
    error_metadata(error)
    lines_of(text, [problem.place for problem in error.problems])


@pytest.mark.parametrize("text", CORPUS)
@pytest.mark.parametrize("server_knows_more", [True, False])
def test_configs_that_were_once_a_fault_are_refused(text: str, server_knows_more: bool) -> None:
    assert is_refused(text, server_knows_more=server_knows_more)


@with_effort
@pytest.mark.parametrize("server_knows_more", [True, False])
def test_random_configs_are_read_or_refused(effort: settings, server_knows_more: bool) -> None:
    @effort
    @given(texts())
    def check(text: str) -> None:
        is_refused(text, server_knows_more=server_knows_more)

    check()
