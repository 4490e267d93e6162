"""Pages of the server: user input is escaped, and unknown users are redirected to the login page."""

import json
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import httpx

from mistify_server.store.directory import open_store
from mistify_server.tuning.groups import add_group
from mistify_server.web.assets import asset_url
from mistify_server.web.node_data import NodeFigure
from tests.mistify_server.web.conftest import Serve

Config = Callable[..., dict[str, object]]

EVIL = '<script>alert("x")</script>'


class Tags(HTMLParser):
    """A parsed page: its tags and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


async def ported(web: httpx.AsyncClient, *configs: object) -> str:
    job = str((await web.post("/v1/jobs", content=json.dumps(configs))).json()["job"]["id"])
    await web.get(f"/v1/jobs/{job}/events")
    return job


async def test_jobs_goals_and_packages_are_linked(web: httpx.AsyncClient, make_config: Config) -> None:
    job = await ported(web, make_config("half", FLOP="0.5x"), make_config("small", num_of_params=100))
    page = Tags((await web.get("/")).text)
    assert f"/jobs/{job}" in {attributes.get("href") for _, attributes in page.tags}
    page = Tags((await web.get(f"/jobs/{job}")).text)
    words = " ".join(page.text.split())
    assert "Model model.json, training data train.json, test data test.json, algorithm" in words
    goals = {attributes.get("href") for tag, attributes in page.tags if tag == "a"}
    assert {f"/jobs/{job}/goals/half", f"/jobs/{job}/goals/small"} <= goals
    page = Tags((await web.get(f"/jobs/{job}/goals/half")).text)
    links = [str(attributes.get("href")) for _, attributes in page.tags if "download" in attributes]
    assert [link.rpartition("/")[2] for link in links[:-1]] == [
        "package.zip",
        "serve.tflite",
        *(f"{figure}.json" for figure in NodeFigure),
        "manifest.json",
        "serve.tflite",
        "signature.json",
    ]
    assert links[-1].startswith("/simple/")
    for link in links:
        assert (await web.get(link)).status_code == 200


async def test_the_events_of_a_page_continue_from_its_content(
    web: httpx.AsyncClient, site: Any, make_config: Config
) -> None:
    (site.control / "hold-package").touch()
    job = str((await web.post("/v1/jobs", json=[make_config("half", FLOP="0.5x")])).json()["job"]["id"])
    heard = []
    async with web.stream("GET", f"/v1/jobs/{job}/events") as stream:
        async for line in stream.aiter_lines():
            heard.append(line)
            if "in package" in line:
                break
    last = max(int(line.removeprefix("id: ")) for line in heard if line.startswith("id: "))
    page = Tags((await web.get(f"/jobs/{job}")).text)
    (live,) = [attributes for _, attributes in page.tags if attributes.get("id") == "live"]
    assert (live["data-after"], live["data-ended"]) == (str(last), "no")
    in_progress = [attributes for tag, attributes in page.tags if "data-subject" in attributes]
    assert [each["data-subject"] for each in in_progress] == ["half"]
    assert in_progress[0]["data-stage"] == "in package, step 1 of 2"
    (site.control / "hold-package").unlink()
    await web.get(f"/v1/jobs/{job}/events")
    page = Tags((await web.get(f"/jobs/{job}")).text)
    assert not [attributes for _, attributes in page.tags if "data-subject" in attributes]


async def test_user_input_is_shown_as_text(web: httpx.AsyncClient, site: Any, make_config: Config) -> None:
    job = await ported(web, make_config("half", FLOP="0.5x"))
    with open_store(site.store) as store:
        settings = json.dumps({"location_km": 1, "time_hours": 24})
        add_group(
            store.tuning, "g", job_id=job, batch=0, correlation="spatiotemporal", settings_text=settings
        )
        store.jobs.record(job, [], 1.0, {EVIL: 1.0})
    page = Tags((await web.get(f"/jobs/{job}")).text)
    assert EVIL in page.text
    own = {*(asset_url(f"{name}.js") for name in ("plotly", "plots", "goals", "mistify")), None}
    assert {attributes.get("src") for tag, attributes in page.tags if tag == "script"} <= own
    assert "location_km" in (await web.get("/fleet")).text


async def test_pages_of_unknown_jobs_are_problems(web: httpx.AsyncClient, make_config: Config) -> None:
    job = await ported(web, make_config("half", FLOP="0.5x"))
    for path in ("/jobs/none", f"/jobs/{job}/goals/none", "/static/none.js", "/static/..%2Fapp.py"):
        assert (await web.get(path)).json()["code"] == "NOT_FOUND"
        page = await web.get(path, headers={"accept": "text/html"})
        assert page.status_code == 404
        assert Tags(page.text).tags[0][0] == "html"


async def test_unknown_browsers_are_redirected_to_the_login_page(serve: Serve) -> None:
    async with serve(token="0123456789abcdef" * 4) as web:
        browser = {"accept": "text/html,application/xhtml+xml"}
        answer = await web.get("/jobs/x", headers=browser)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fjobs%2Fx")
        assert (await web.get("/login", headers=browser)).status_code == 200
        for name in ("mistify.css", "login.js", "icon.svg"):
            assert (await web.get(f"/static/{name}")).status_code == 200
        assert (await web.get("/jobs/x")).status_code == 401
