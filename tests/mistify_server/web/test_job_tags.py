"""Jobs have tags, by which they are found, and which can be changed."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_server.jobs.searching import search_of
from mistify_server.names import MOST_TAGS, checked_tags
from mistify_server.store.jobs import JobSearch

Config = Callable[..., dict[str, object]]


async def test_jobs_are_found_by_their_tags(web: httpx.AsyncClient, make_config: Config) -> None:
    goals = [make_config("a", FLOP="0.5x")]
    for name, tags in (
        ("first", ["team=vision", "Urgent"]),
        ("second", ["team=visionary"]),
        ("vision", []),
        ("quoted", ['a"b', "100%"]),
    ):
        made = await web.post("/v1/jobs", params={"name": name, "tag": tags}, json=goals)
        assert made.json()["job"]["tags"] == tags
    for search, found in (
        ("tag:team=vision", ["first"]),
        ("TAG:urgent", ["first"]),
        ("tag:team=vision tag:urgent", ["first"]),
        ("tag:team=vision second", []),
        ("tag:team=visionary second", ["second"]),
        ("vision", ["vision", "second", "first"]),
        ('tag:a"b', ["quoted"]),
        ("0%", ["quoted"]),  # no wildcard
        ("t%v", []),
        ('["', []),  # not how they are stored
    ):
        answer = (await web.get("/v1/jobs", params={"search": search})).json()
        assert [part["job"]["name"] for part in answer["jobs"]] == found, search


async def test_tags_are_changed_and_shown(web: httpx.AsyncClient, make_config: Config) -> None:
    made = await web.post("/v1/jobs?name=n&tag=x", json=[make_config("a", FLOP="0.5x")])
    path = f"/v1/jobs/{made.json()['job']['id']}"
    assert (await web.patch(path, json={"tags": ["<b>", "y&z", "Y&Z"]})).status_code == 204
    job = (await web.get(path)).json()["job"]
    assert (job["name"], job["tags"]) == ("n", ["<b>", "y&z"])
    for page in (await web.get("/"), await web.get(path.removeprefix("/v1"))):
        assert '<a href="/?search=tag%3Ay%26z">y&amp;z</a>' in page.text
        assert "&lt;b&gt;</a>" in page.text
    assert (await web.patch(path, json={"name": "m"})).status_code == 204
    assert (await web.get(path)).json()["job"]["tags"] == ["<b>", "y&z"]
    assert (await web.patch(path, json={"tags": []})).status_code == 204
    job = (await web.get(path)).json()["job"]
    assert (job["name"], job["tags"]) == ("m", [])
    for wrong, status in (({"tags": ["two words"]}, 400), ({"label": "x"}, 422), ({"tags": "x"}, 422)):
        assert (await web.patch(path, json=wrong)).status_code == status
    refused = await web.post("/v1/jobs?tag=", json=[make_config("a", FLOP="0.5x")])
    assert refused.json()["code"] == "INVALID_CONFIG"


async def test_jobs_have_priorities_on_their_pages(
    web: httpx.AsyncClient, make_config: Config, site: Any
) -> None:
    (site.control / "hold-source").touch()
    goals = [make_config("a", FLOP="0.5x")]
    made = (await web.post("/v1/jobs?priority=high", json=goals)).json()["job"]
    usual = (await web.post("/v1/jobs", json=goals)).json()["job"]
    assert (made["priority"], usual["priority"]) == ("high", "normal")
    path = f"/v1/jobs/{made['id']}"
    for page in ("/", path.removeprefix("/v1")):
        assert (await web.get(page)).text.count("high priority") == 1
    assert "<option selected>high</option>" in (await web.get(path.removeprefix("/v1"))).text
    assert (await web.patch(path, json={"priority": "low"})).status_code == 204
    changed = (await web.get(path)).json()["job"]
    assert (changed["priority"], changed["name"], changed["tags"]) == ("low", "", [])
    assert (await web.patch(path, json={"name": "n"})).status_code == 204
    assert (await web.get(path)).json()["job"]["priority"] == "low"
    assert (await web.patch(path, json={"priority": "urgent"})).status_code == 422
    assert (await web.post("/v1/jobs?priority=7", json=goals)).status_code == 422
    (site.control / "hold-source").unlink()


@pytest.mark.parametrize("tag", ["", "two words", "tab\t", "x" * 65, "\ud800", "\u2003"])
def test_a_tag_is_a_printable_word(tag: str) -> None:
    with pytest.raises(MistifyError, match=r"got the tag .*expected a word of up to 64") as caught:
        checked_tags(["fine", tag])
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_tags_are_kept_in_order_and_once() -> None:
    assert checked_tags(["b", "a", "B", "x" * 64]) == ("b", "a", "x" * 64)
    many = [str(number) for number in range(MOST_TAGS + 1)]
    assert checked_tags([*many[:MOST_TAGS], "0"]) == tuple(many[:MOST_TAGS])
    with pytest.raises(MistifyError, match="got 21 tags; expected up to 20"):
        checked_tags(many)


@pytest.mark.parametrize(
    ("text", "search"),
    [
        ("", JobSearch()),
        ("two  words ", JobSearch("two  words ")),
        ("tag:", JobSearch("tag:")),
        ("one tag:a two TAG:b", JobSearch("one two", ("a", "b"))),
        ("stag:a", JobSearch("stag:a")),
    ],
)
def test_searches_consist_of_text_and_tags(text: str, search: JobSearch) -> None:
    assert search_of(text) == search
    assert search_of(text, removed=True).removed
