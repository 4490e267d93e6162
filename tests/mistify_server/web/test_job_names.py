"""Jobs have names for people, by which they are found."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.v1 import porting_pb2 as pb
from mistify_server.names import check_job_name

Config = Callable[..., dict[str, object]]


def named(answer: httpx.Response) -> list[str]:
    """Return the names of the jobs in a response."""
    assert answer.status_code == 200, answer.text
    return [part["job"]["name"] for part in answer.json()["jobs"]]


async def test_jobs_are_named_found_and_renamed(web: httpx.AsyncClient, make_config: Config) -> None:
    goals = [make_config("a", FLOP="0.5x")]
    ids = []
    for name in ("Keyword spotting, v2", "100 % of_a kind", "Größe in ÅNGSTRÖM", ""):
        made = await web.post("/v1/jobs", params={"name": name}, json=goals)
        assert made.json()["job"]["name"] == name
        ids.append(made.json()["job"]["id"])
    assert named(await web.get("/v1/jobs")) == [
        "",
        "Größe in ÅNGSTRÖM",
        "100 % of_a kind",
        "Keyword spotting, v2",
    ]
    for search, found in (
        ("SPOTTING", ["Keyword spotting, v2"]),
        ("%", ["100 % of_a kind"]),  # no wildcard
        ("f_a", ["100 % of_a kind"]),
        ("_", ["100 % of_a kind"]),
        ("GRÖSSE IN ångström", ["Größe in ÅNGSTRÖM"]),
        (ids[3], [""]),
        ("local", ["", "Größe in ÅNGSTRÖM", "100 % of_a kind", "Keyword spotting, v2"]),  # who submitted them
        ("nothing", []),
    ):
        assert named(await web.get("/v1/jobs", params={"search": search})) == found, search
    page = (await web.get("/", params={"search": "spotting"})).text
    assert ids[0] in page
    assert ids[1] not in page
    assert "<h1>Keyword spotting, v2</h1>" in (await web.get(f"/jobs/{ids[0]}")).text
    assert f"<h1>{ids[3]}</h1>" in (await web.get(f"/jobs/{ids[3]}")).text
    assert "No job has “nothing”" in (await web.get("/", params={"search": "nothing"})).text

    assert (await web.patch(f"/v1/jobs/{ids[2]}", json={"name": "third"})).status_code == 204
    assert (await web.get(f"/v1/jobs/{ids[2]}")).json()["job"]["name"] == "third"
    refused = await web.patch(f"/v1/jobs/{ids[2]}", json={"name": "two\nlines"})
    assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_CONFIG")
    assert (await web.patch("/v1/jobs/none", json={"name": "x"})).status_code == 404


async def test_pages_of_found_jobs_follow_each_other(web: httpx.AsyncClient, make_config: Config) -> None:
    for number in range(5):
        name = f"odd {number}" if number % 2 else f"even {number}"
        await web.post("/v1/jobs", params={"name": name}, json=[make_config("a", FLOP="0.5x")])
    first = (await web.get("/v1/jobs", params={"search": "even", "page_size": 2})).json()
    assert [part["job"]["name"] for part in first["jobs"]] == ["even 4", "even 2"]
    rest = await web.get(
        "/v1/jobs", params={"search": "even", "page_size": 2, "page_token": first["next_page_token"]}
    )
    assert named(rest) == ["even 0"]
    assert rest.json()["next_page_token"] == ""


async def test_a_search_has_a_limit_over_grpc(caller: Any) -> None:
    listed = await caller.call(caller.stub.ListJobs, pb.ListJobsRequest(search="x" * 200))
    assert not listed.jobs
    with pytest.raises(MistifyError, match="expected up to 200; shorten") as caught:
        await caller.call(caller.stub.ListJobs, pb.ListJobsRequest(search="x" * 60_000))
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("name", ["x" * 101, "two\nlines", "tab\t", "\ud800", " ", " x"])
def test_names_fit_one_line(name: str) -> None:
    check_job_name("x" * 100)
    with pytest.raises(MistifyError, match="up to 100 printable characters") as caught:
        check_job_name(name)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
