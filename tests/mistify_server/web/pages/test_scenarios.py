"""The page for further tasks and limits of a job: its form, the errors at its fields, and its table."""

import json
import re
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.mistify_server.jobs.test_preparations import ESTIMATES, NESTED, SOURCE

Config = Callable[..., dict[str, object]]

SPACE = {
    "properties": {"what": ["any", "every"], "where": ["left", "right", "<top>"]},
    "names": {"side": ["left", "right"]},
    "tasks": {"any-left": ["any", "left"], "every-side": ["every", "side"]},
}
SERVED = {
    "space": SPACE,
    "quality": {
        "tasks": ["any, left", "every, side"],
        "limits": [0.1, 0.5, 1.0],
        "scores": [[0.8, 0.9, 0.95], [0.7, 0.8, 0.85]],
    },
    "costs": {"flops": [1000.0, 4000.0, 9000.0], "memory_bytes": [800.0, 4000.0, 8000.0]},
}


class Form(HTMLParser):
    """A page with a form: its fields, what is wrong with each of them, and its rows of text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fields: dict[str, list[str]] = {}
        self.invalid: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.links: dict[str, str] = {}
        self.rows: list[list[str]] = []
        self._id = self._link = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self._id = own.get("id", "") if tag == "span" else ""
        self._link = own.get("href", "") if tag == "a" else ""
        chosen = own.get("type") not in ("checkbox", "radio") or "checked" in own
        if tag == "input" and chosen and own["value"]:
            self.fields.setdefault(own["name"], []).append(own["value"])
        if tag == "input" and "aria-invalid" in own:
            self.invalid[own["name"]] = own["aria-describedby"]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if self._id:
            self.texts[self._id] = self.texts.get(self._id, "") + text
        if self._link and text:
            self.links[text] = self._link
        if self.rows and text:
            self.rows[-1][-1] = " ".join(filter(None, (self.rows[-1][-1], text)))

    def row(self, beginning: str) -> list[str]:
        return next(row for row in self.rows if row and row[0] == beginning)


@pytest.fixture
def served(site: Any, make_config: Config) -> dict[str, object]:
    """Return a goal whose algorithm serves tasks."""
    profiles = {"nested": NESTED.model_copy(update={"serves_tasks": True}).model_dump()}
    floor = {axis: cost / 200 for axis, cost in SOURCE.items()}
    site.write(
        "model.json", {"costs": SOURCE, "floor": floor, "estimates": {**ESTIMATES, "profiles": profiles}}
    )
    site.write("tasks.json", SPACE)
    (site.control / "served").write_text(json.dumps(SERVED))
    goal = make_config("first", algorithm="nested", FLOP="0.5x")
    data = {"train": "train.json", "test": "test.json", "tasks": "tasks.json"}
    return {**goal, "dataset": data, "task": ["any", "left"]}


@pytest.fixture
async def job(web: httpx.AsyncClient, served: Mapping[str, object]) -> str:
    return await ported(web, served)


async def ported(web: httpx.AsyncClient, *configs: object) -> str:
    job = str((await web.post("/v1/jobs", content=json.dumps(configs))).json()["job"]["id"])
    await web.get(f"/v1/jobs/{job}/events")
    return job


async def shown(web: httpx.AsyncClient, job: str, query: str = "") -> Form:
    return Form((await web.get(f"/jobs/{job}/scenarios{query}")).text)


async def sent(web: httpx.AsyncClient, job: str, **fields: object) -> httpx.Response:
    """Fill in and send the form of a job's page."""
    form = (await shown(web, job)).fields | fields
    return await web.post(f"/jobs/{job}/scenarios", data=form)


async def test_a_job_leads_to_a_form_with_its_tasks(web: httpx.AsyncClient, job: str) -> None:
    page = (await web.get(f"/jobs/{job}")).text
    assert f'href="/jobs/{job}/scenarios"' in page
    answer = await web.get(f"/jobs/{job}/scenarios")
    # Without it, browsers send no origin, and the server refuses the form.
    assert answer.headers["referrer-policy"] == "same-origin"
    assert re.findall(r'type="(\w+)" name="task-(\d)" value="([^"]+)"', answer.text) == [
        *(("radio", "0", value) for value in ("any", "every")),
        *(("checkbox", "1", value) for value in ("left", "right", "&lt;top&gt;", "side")),
    ]
    assert '<option value="raspberry-pi-4">' in answer.text
    assert '<option value="host">' not in answer.text


async def test_the_table_has_expected_scores_and_costs_and_the_goals(
    web: httpx.AsyncClient, job: str
) -> None:
    page = await shown(web, job)
    assert page.row("Units") == ["Units", "10 %", "25 %", "50 %", "100 %", "Networks"]
    assert page.row("multiply-adds") == ["multiply-adds", "0.10x", "0.27x", "0.40x", "0.90x", ""]
    assert page.row("Mean accuracy")[1:-1] == ["75.0%", "80.7%", "85.0%", "90.0%"]
    assert page.row("every, side") == ["every, side", "70.0%", "75.7%", "80.0%", "85.0%", ""]
    *scores, made = page.row("any, left")
    assert scores[1:] == ["80.0%", "85.7%", "90.0%", "95.0%"]
    assert made == "first met 80.0%, 500us Download"
    assert (await web.get(page.links["Download"])).status_code == 200
    assert page.links["first"] == f"/jobs/{job}/goals/first"


async def test_a_task_of_the_table_fills_in_the_form(web: httpx.AsyncClient, job: str) -> None:
    link = (await shown(web, job)).links["every, side"]
    fields = (await shown(web, job, link)).fields
    assert (fields["task-0"], fields["task-1"]) == (["every"], ["side"])


async def test_a_form_adds_a_goal_that_is_served_without_another_preparation(
    web: httpx.AsyncClient, site: Any, job: str
) -> None:
    fields = {
        "task-0": "every",
        "task-1": ["right", "<top>"],
        "limit-FLOP": "0.3x",
        "hardware": "jetson-nano",
    }
    answer = await sent(web, job, **fields)
    assert answer.status_code == 303
    assert answer.headers["location"] == f"/jobs/{job}/goals/every-right--top-jetson-nano-0.3x"
    await web.get(f"/v1/jobs/{job}/events")
    goals = (await web.get(f"/v1/jobs/{job}")).json()["job"]["goals"]
    assert goals[1]["spec"]["task"] == ["every", "right", "<top>"]
    assert goals[1]["spec"]["budget"] == {"flops": 3000.0}
    assert len(site.tasks("prepare")) == 1
    row = (await shown(web, job)).row("every, right, <top>")
    assert row[1:-1] == ["never trained"]
    assert row[-1].startswith("every-right--top-jetson-nano-0.3x met")


async def test_a_form_that_is_sent_twice_adds_one_goal(web: httpx.AsyncClient, job: str) -> None:
    form = (await shown(web, job)).fields | {"task-1": "right", "limit-FLOP": "0.3x"}
    answers = [await web.post(f"/jobs/{job}/scenarios", data=form) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [303, 303]
    assert answers[0].headers["location"] == answers[1].headers["location"]
    assert len((await web.get(f"/v1/jobs/{job}")).json()["job"]["goals"]) == 2


async def test_problems_are_shown_at_their_fields(web: httpx.AsyncClient, job: str) -> None:
    mistakes = {
        "limit-latency": ("fast", 'got "fast"; expected a time'),
        "limit-FLOP": ("0.000001x", "expected at least"),
        "limit-accuracy": ("2", "expected"),
        "hardware": ("abacus", 'got "abacus"'),
        "id": ("FIRST", "an id that no goal of the job"),
    }
    for field, (value, problem) in mistakes.items():
        answer = await sent(web, job, **{"task-1": "right", "limit-FLOP": "0.3x", field: value})
        assert answer.status_code == 400
        page = Form(answer.text)
        assert page.invalid == {field: f"{field}-0-problem"}
        assert problem in page.texts[f"{field}-0-problem"]
        assert (page.fields[field], page.fields["task-1"]) == ([value], ["right"])
    assert len((await web.get(f"/v1/jobs/{job}")).json()["job"]["goals"]) == 1


async def test_problems_of_several_fields_are_shown_at_their_group(web: httpx.AsyncClient, job: str) -> None:
    mistakes: list[tuple[dict[str, object], str, str]] = [
        ({}, "task", 'expected a value of "where" as well: left, right, <top>, side'),
        ({"task-0": []}, "task", "got nothing; expected a task"),
        ({"task-0": "both", "task-1": "right"}, "task", 'got "both"; expected one of'),
        ({"task-1": "right", "limit-FLOP": ""}, "adaptation_goal", "a limit on at least one of FLOP"),
    ]
    for fields, group, problem in mistakes:
        answer = await sent(web, job, **{"limit-FLOP": "0.3x", **fields})
        assert answer.status_code == 400
        assert problem in Form(answer.text).texts[f"{group}-0-problem"]


async def test_a_job_without_a_supernet_says_so(web: httpx.AsyncClient, make_config: Config) -> None:
    job = await ported(web, make_config("half", FLOP="0.5x"))
    assert "scenarios" not in (await web.get(f"/jobs/{job}")).text
    answer = await web.get(f"/jobs/{job}/scenarios")
    assert "no supernet yet" in answer.text
    assert "<form" not in answer.text
    answer = await web.post(f"/jobs/{job}/scenarios", data={"batch": "0"})
    assert answer.json()["code"] == "CONFLICT"


async def test_a_form_of_another_batch_is_refused(web: httpx.AsyncClient, job: str) -> None:
    for batch in ("1", "x", "9" * 5000, ""):
        answer = await sent(web, job, **{"batch": batch, "task-1": "right", "limit-FLOP": "0.3x"})
        assert (answer.status_code, answer.json()["code"]) == (409, "CONFLICT")
        assert (await web.get(f"/jobs/{job}/scenarios?batch={batch}")).status_code == 200


async def test_classes_are_chosen_by_their_names(web: httpx.AsyncClient, site: Any, job: str) -> None:
    """The supernet of another job tells classes apart, two of which have the same name."""
    space = {
        "properties": {"classes": ["0", "1", "2"]},
        "names": {"all": ["0", "1", "2"]},
        "tasks": {"a": ["all"]},
    }
    served = {**SERVED, "space": space, "classes": ["cat", "bat", "bat"]}
    served["quality"] = {**SERVED["quality"], "tasks": ["0, 1", "1, 2"]}
    (site.control / "served").write_text(json.dumps(served))
    network = json.loads((site.root / "model.json").read_text()) | {"classes": ["cat", "bat", "bat"]}
    site.write("model.json", network)
    goal = {
        "id": "first", "model": "model.json", "dataset": {"train": "train.json", "test": "test.json"},
        "algorithm": "nested", "task": {"classes": ["cat", "1"]}, "adaptation_goal": {"FLOP": "0.5x"},
    }  # fmt: skip
    other = await ported(web, goal)
    page = (await web.get(f"/jobs/{other}/scenarios")).text
    assert re.findall(r'name="task-0" value="(\w+)" > (\w+)', page) == [
        ("cat", "cat"), ("1", "bat"), ("2", "bat"),
    ]  # fmt: skip
    answer = await sent(web, other, **{"task-0": ["1", "2"], "limit-FLOP": "0.5x", "id": "bats"})
    assert urlsplit(answer.headers["location"]).path == f"/jobs/{other}/goals/bats"
    goals = (await web.get(f"/v1/jobs/{other}")).json()["job"]["goals"]
    assert goals[1]["spec"]["task"] == {"classes": ["1", "2"]}
    assert parse_qs((await shown(web, other)).links["1, 2"].removeprefix("?"))["task-0"] == ["1", "2"]
