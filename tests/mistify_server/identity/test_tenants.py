"""What each tenant has for itself."""

from concurrent.futures import ThreadPoolExecutor
from inspect import Parameter, signature
from threading import Event

import pytest

from mistify_server.identity.callers import Caller, CallerId
from mistify_server.identity.tenants import ByTenant
from mistify_server.identity.tokens import AccessToken
from mistify_server.jobs.step_queue import StepQueue
from mistify_server.store.sql.devices import SqlDeviceStore
from mistify_server.store.sql.fleet import SqlFleetStore
from mistify_server.store.sql.rollouts import SqlRolloutStore
from mistify_server.store.sql.tokens import SqlTokenStore
from tests.support.callers import called_by


def test_each_tenant_has_its_own() -> None:
    made: list[str] = []

    def make(tenant: str) -> list[str]:
        made.append(tenant)
        return [tenant]

    kept = ByTenant(make, ["red"])
    assert sorted(made) == ["default", "red"]
    assert kept.of("red") is kept.of("red")
    assert kept.of("red") is not kept.of("blue")
    assert sorted(made) == ["blue", "default", "red"]
    assert sorted(kept.all()) == [["blue"], ["default"], ["red"]]


def test_a_call_reaches_that_of_its_caller() -> None:
    kept = ByTenant(lambda tenant: tenant)
    with called_by(Caller("ci", frozenset(), "red")):
        assert kept.own == "red"


async def test_nothing_is_reached_for_an_unknown_caller() -> None:
    kept = ByTenant(lambda tenant: tenant)
    with pytest.raises(LookupError, match="caller is unknown"):
        _ = kept.own
    with pytest.raises(LookupError, match="caller is unknown"):
        await kept.ready()


def test_threads_share_what_a_tenant_has() -> None:
    kept = ByTenant(lambda _: object())
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(kept.of, ["red"] * 100))) == 1


def test_tenants_do_not_wait_while_something_is_made_for_a_new_one() -> None:
    making, opened = Event(), Event()

    def make(tenant: str) -> str:
        if tenant == "new":
            making.set()
            assert opened.wait(60)
        return tenant

    kept = ByTenant(make, ["red"])
    with ThreadPoolExecutor(3) as threads:
        try:
            new = threads.submit(kept.of, "new")
            assert making.wait(60)
            assert threads.submit(kept.of, "red").result(60) == "red"
            assert sorted(threads.submit(kept.all).result(60)) == ["default", "red"]
        finally:
            opened.set()
        assert new.result(60) == "new"
    assert sorted(kept.all()) == ["default", "new", "red"]


def test_callers_outside_of_the_default_tenant_are_named_with_theirs() -> None:
    assert [str(CallerId(tenant, "ci")) for tenant in ("default", "red")] == ["ci", "red/ci"]


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (Caller, "tenant"),
        (AccessToken, "tenant"),
        (StepQueue, "caller"),
        (SqlDeviceStore, "tenant"),
        (SqlFleetStore, "tenant"),
        (SqlRolloutStore, "tenant"),
        (SqlTokenStore, "tenant"),
    ],
)
def test_a_forgotten_tenant_is_not_that_of_the_operator(made: type, named: str) -> None:
    assert signature(made).parameters[named].default is Parameter.empty


def test_all_tenants_are_in_the_order_in_which_theirs_was_made() -> None:
    made = ByTenant(str.upper, ["red", "blue", "green", "grey"])
    assert made.of("black") == "BLACK"
    assert made.all() == ["DEFAULT", "RED", "BLUE", "GREEN", "GREY", "BLACK"]
