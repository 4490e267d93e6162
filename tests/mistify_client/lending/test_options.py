"""Packages with several options, each of which helpers may help with."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import mistify_client
from mistify.errors import MistifyError
from mistify.package.blocks import BlockEstimate
from mistify.package.opened import Package
from mistify_client.lending import offloading, placement
from mistify_client.lending.opening import block_network
from mistify_client.lending.prediction import HelperFigures, NetworkCuts, shares_before
from mistify_client.lending.reports import read_reports
from mistify_client.lending.segments import LoadedSegments, Segments
from mistify_client.lending.sessions import Session
from mistify_client.runtime import helped
from mistify_client.runtime.model import PortedModel
from mistify_client.runtime.statistics import observed
from mistify_client.runtime.switchboard import Switchboard
from mistify_client.runtime.versions import state_directory
from tests.mistify_client.lending.conftest import TOKEN, helper, until
from tests.mistify_client.pools import SUBNETS, make_block_package, write_pool
from tests.support.block_stores import images
from tests.support.threads import without_threads
from tests.support.tokens import write_token


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = make_block_package(tmp_path / "package")
    write_pool(package)
    return package


@pytest.fixture
def token() -> str:
    """The token that the device has when it loads the package."""
    return TOKEN


@pytest.fixture
def model(package: Path, token: str, monkeypatch) -> Iterator[PortedModel]:
    """Load the package with a helper, which counts as faster whatever it takes."""
    monkeypatch.setattr(offloading, "FASTEST_MS", 0.0)
    monkeypatch.setattr(helped, "FASTEST_MS", 0.0)
    monkeypatch.setattr(placement, "is_much_faster", lambda one, other: True)
    write_token(package.with_name("token"), token)
    with helper(package) as address:
        config = package.with_name("monitor.toml")
        text = f'[lending]\nhelpers = ["{address}"]\ntoken_file = "token"\npatience = 1000\n'
        config.write_text(text)
        yield mistify_client.load(package, lending=config)


def is_helped(package: Path) -> bool:
    (runtime,) = observed(state_directory(package))
    return bool(runtime.inferences["helped"][-1])


def runs_until(model: PortedModel, condition: Callable[[], bool]) -> None:
    """Run the same example until a condition holds."""

    def ran() -> bool:
        model(images(1))
        return condition()

    until(ran)


def test_every_subnet_is_helped_with_the_answers_that_it_gives_alone(package, model) -> None:
    alone = mistify_client.load(package)
    for option in ("subnet-0", "subnet-1", "subnet-0"):
        model.switch(option)
        runs_until(alone, lambda option=option: alone.running == option)
        expected = alone(images(1))
        runs_until(model, lambda option=option: model.running == option and is_asked(model))
        np.testing.assert_allclose(model(images(1)), expected, atol=1e-6)
    assert model.statistics().counts["subnet-0"] > 0


def is_asked(model: PortedModel) -> bool:
    (address,) = model.lending.problems
    return model.lending.placement.helpers == (address,)


def test_no_helper_is_asked_while_the_switchboard_forbids_it(package, model) -> None:
    runs_until(model, lambda: is_helped(package))
    switchboard = Switchboard.open(state_directory(package))
    switchboard.forbid_helpers(60)
    runs_until(model, lambda: not is_helped(package))
    for _ in range(20):
        model(images(1))
        assert not is_helped(package)
    assert model.lending.placement.reason.endswith("and the monitor has chosen so")
    switchboard.forbid_helpers(0)
    runs_until(model, lambda: is_helped(package))


def test_the_times_of_all_subnets_with_helpers_are_reported(package, model) -> None:
    def reported() -> bool:
        (report,) = read_reports(state_directory(package))
        return report.helped_ms.keys() == {"subnet-0", "subnet-1"}

    runs_until(model, reported)
    (report,) = read_reports(state_directory(package))
    assert report.option == "subnet-1"
    assert report.local_ms > 0
    slower = SUBNETS[1].latency_ms / SUBNETS[0].latency_ms
    assert 1 < report.helped_ms["subnet-1"] / report.helped_ms["subnet-0"] < slower


def test_the_time_with_helpers_is_that_of_the_best_chain() -> None:
    """Half of the work is before the second cut, whose tensors have 1,000 bytes."""
    cuts = NetworkCuts(20.0, ((0.0, 10_000), (0.5, 1_000)), 100)
    near, far = HelperFigures(1.0, 1e-4, 1.0), HelperFigures(2.0, 1e-3, 0.25)
    assert cuts.helped_ms(4.0, []) is None
    assert cuts.helped_ms(4.0, [near]) == pytest.approx(1 + 1.01 + 20)
    assert cuts.helped_ms(4.0, [near, far]) == pytest.approx(2 + 10.1 + 5)
    slow_link = HelperFigures(2.0, 3e-3, 0.1)
    assert cuts.helped_ms(4.0, [near, slow_link]) == pytest.approx((1 + 1.1 + 10) + (2 + 3.3 + 1))
    assert cuts.helped_ms(0.2, [far]) == pytest.approx(0.2 * 10 + 2 + 1.1 + 2.5)


def test_the_work_before_a_segment_is_that_of_the_multiply_adds_of_its_blocks(package) -> None:
    sized = block_network(Package.open(package), SUBNETS[1].files).blocks
    sizes = [block.content.size for block in sized]
    assert shares_before(sized, (0, 2)) == pytest.approx((0.0, sum(sizes[:2]) / sum(sizes)))
    estimated = [
        block.model_copy(update={"estimate": BlockEstimate(flops=flops, loss=0.0)})
        for block, flops in zip(sized, (1, 2, 3, 4), strict=True)
    ]
    assert shares_before(estimated, (0, 2, 3)) == pytest.approx((0.0, 0.3, 0.6))


@pytest.mark.parametrize("computing_ms", [math.nan, -5.0, 1e308])
def test_inferences_go_on_whatever_times_a_helper_reports(package, model, monkeypatch, computing_ms) -> None:
    run = Session._run

    def lying(session, request):
        answer = run(session, request)
        answer.computing_ms = computing_ms
        return answer

    monkeypatch.setattr(Session, "_run", lying)
    runs_until(model, lambda: "reports impossible times" in "".join(model.lending.problems.values()))
    assert model.lending.placement.is_local


# With the right token, the helper could help already when the file is removed.
@pytest.mark.parametrize("token", ["another token"])
def test_an_option_runs_also_while_the_token_of_the_helpers_cannot_be_read(package, model) -> None:
    file = package.with_name("token")
    file.unlink()
    for option in ("subnet-0", "subnet-1", "subnet-0"):
        model.switch(option)
        runs_until(model, lambda option=option: model.running == option)
        assert model.lending.placement.is_local
    until(lambda: str(file) in "".join(model.lending.problems.values()))


def test_an_option_runs_alone_while_no_thread_can_be_started_for_its_helpers(package, model) -> None:
    runs_until(model, lambda: is_helped(package))
    other = "subnet-0" if model.running == "subnet-1" else "subnet-1"
    model.switch(other)
    model(images(1))
    until(lambda: model.running == other)
    with without_threads():
        model(images(1))
        (problem,) = model.lending.problems.values()
        assert "can't start new thread" in problem
        assert not is_helped(package)
    runs_until(model, lambda: is_helped(package))


def test_a_package_is_not_loaded_with_a_token_that_cannot_be_read(package) -> None:
    config = package.with_name("monitor.toml")
    config.write_text('[lending]\nhelpers = ["127.0.0.1:1"]\ntoken_file = "absent"\n')
    with pytest.raises(MistifyError, match="absent"):
        mistify_client.load(package, lending=config)


def test_segments_that_cannot_be_loaded_are_loaded_later() -> None:
    loaded, failures = LoadedSegments((), ()), [OSError("too many open files")]

    def load() -> LoadedSegments:
        if failures:
            raise failures.pop()
        return loaded

    now = 0.0
    segments = Segments(load, clock=lambda: now)
    segments.want()
    until(lambda: not failures)

    def is_loaded_later() -> bool:
        nonlocal now
        now += 61.0  # the failure may be noted only now
        segments.want()
        return segments.loaded is not None

    until(is_loaded_later)
    assert segments.loaded is loaded


def test_segments_that_are_not_wanted_any_more_are_not_kept() -> None:
    loaded = LoadedSegments((), ())
    segments = Segments(lambda: loaded)
    assert segments.loaded is None
    segments.want()
    until(lambda: segments.loaded is loaded)
    segments.drop()
    assert segments.loaded is None
