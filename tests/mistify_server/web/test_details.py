"""Details of a goal are the same over HTTP, over gRPC and on its page."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.details import GoalDetails
from mistify_client.rpc.porting import PortingClient
from mistify_server.server import running_server
from tests.mistify_server.scripted_worker import GRAPH, LAYERS
from tests.mistify_server.web.test_jobs import events, submitted

Config = Callable[..., dict[str, object]]

DETAILS = TypeAdapter(GoalDetails)


async def test_http_and_grpc_have_the_same_details(site: Any, make_config: Config) -> None:
    async with (
        running_server(site.settings(http="127.0.0.1:0")) as (address, url),
        httpx.AsyncClient(base_url=url, timeout=60) as web,
    ):
        job = await submitted(web, make_config("half", FLOP="0.5x", num_of_params="0.5x"))
        every = await events(web, job)
        answer = await web.get(f"/v1/jobs/{job}/goals/half/details")
        details = DETAILS.validate_python(answer.json())
        assert details.layers == LAYERS
        assert details.graph == GRAPH
        assert details.sequence == len(every)
        (point,) = details.curve
        assert (point.stage, point.costs) == ("adapting", {})
        assert point.structure_loss_weights == {"flops": 0.5, "params": 0.5}
        with PortingClient(address) as client:
            assert await asyncio.to_thread(client.details, job, "half") == details
            with pytest.raises(MistifyError, match='no goal "none"') as raised:
                await asyncio.to_thread(client.details, job, "none")
        assert raised.value.code is ErrorCode.NOT_FOUND
        for missing in (f"{job}/goals/none", "none/goals/half"):
            assert (await web.get(f"/v1/jobs/{missing}/details")).status_code == 404


async def test_events_can_start_after_those_on_a_page(web: httpx.AsyncClient, make_config: Config) -> None:
    job = await submitted(web, make_config("half", FLOP="0.5x"))
    every = await events(web, job)
    rest = await web.get(f"/v1/jobs/{job}/events", params={"after": 3})
    assert [int(number) for number in re.findall(r"^id: (\d+)$", rest.text, re.M)] == list(
        range(4, len(every) + 1)
    )
    # A reconnecting browser has received more events since.
    later = await web.get(f"/v1/jobs/{job}/events", params={"after": 3}, headers={"last-event-id": "5"})
    assert [int(number) for number in re.findall(r"^id: (\d+)$", later.text, re.M)] == list(
        range(6, len(every) + 1)
    )


async def test_the_page_of_a_goal_shows_its_layers_and_curve(
    web: httpx.AsyncClient, make_config: Config, site: Any
) -> None:
    (site.control / "hold-package").touch()
    job = await submitted(web, make_config("half", FLOP="0.5x"))
    address = f"/jobs/{job}/goals/half"
    async with asyncio.timeout(60):
        while "adapting" not in (page := (await web.get(address)).text):
            await asyncio.sleep(0.01)
    assert 'data-ended="no"' in page
    assert "<h2>Layers</h2>" not in page
    assert "<h2>Network</h2>" not in page
    (site.control / "hold-package").unlink()
    await events(web, job)
    page = (await web.get(address)).text
    assert 'data-ended="yes"' in page
    assert re.search(r"stem <span class=.kind.>Conv2D, removed</span>", page)
    assert "8 &rarr; 0" in page
    assert "It grows most in" in page
    assert "8 of 32" in page
    found = re.search(r'id="curves-data">(.*?)</script>', page)
    assert found is not None
    curves = json.loads(found[1])
    assert curves["labels"] == {"flops": "multiply-adds"}
    assert [point["relative_costs"] for point in curves["points"]] == [{"flops": 1.0}]


@pytest.mark.parametrize(
    ("figure", "values"),
    [
        ("error", {"0": 0.5, "1": 3.4}),
        ("multiply-adds", {"0": 0.0, "1": 1_152.0}),
        ("milliseconds", {"0": 0.01, "1": 0.25}),
        ("weight-bytes", {"0": 0.0, "1": 104.0}),
        ("output-bytes", {"0": 16.0, "1": 128.0}),
        ("channels", {"1": 25.0}),
    ],
)
async def test_figures_of_operators_are_node_data_of_model_explorer(
    web: httpx.AsyncClient, make_config: Config, figure: str, values: dict[str, float]
) -> None:
    """Its graphs have the names of those in the file, and its nodes the numbers of their operators."""
    job = await submitted(web, make_config("half", FLOP="0.5x"))
    await events(web, job)
    answer = await web.get(f"/v1/jobs/{job}/goals/half/node-data/{figure}.json")
    (graph, data), *others = answer.json().items()
    assert (graph, others) == ("main", [])
    assert {node: result["value"] for node, result in data["results"].items()} == pytest.approx(values)
    assert [stop["stop"] for stop in data["gradient"]] == [0, 1]
    assert (
        f"/v1/jobs/{job}/goals/half/node-data/{figure}.json"
        in (await web.get(f"/jobs/{job}/goals/half")).text
    )


async def test_node_data_that_do_not_exist_are_an_error(
    web: httpx.AsyncClient, make_config: Config, site: Any
) -> None:
    (site.control / "hold-package").touch()
    job = await submitted(web, make_config("half", FLOP="0.5x"))
    missing = await web.get(f"/v1/jobs/{job}/goals/half/node-data/error.json")
    assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")
    assert 'the goal "half" has no error of its operators; it has no figures' in missing.json()["detail"]
    unknown = await web.get(f"/v1/jobs/{job}/goals/half/node-data/joules.json")
    assert (unknown.status_code, unknown.json()["code"]) == (422, "INVALID_CONFIG")
    (site.control / "hold-package").unlink()
