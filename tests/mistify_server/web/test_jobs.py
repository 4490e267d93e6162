"""Jobs over HTTP: the same service and errors, resumable events, and downloads of packages and ranges."""

import base64
import hashlib
import html
import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from typing import Any

import httpx

from mistify.package.manifest import MANIFEST
from mistify.package.signature import SIGNATURE_FILE, KeyChain, PackageSignature
from tests.mistify_server.conftest import COSTS

Config = Callable[..., dict[str, object]]


async def events(web: httpx.AsyncClient, job: str, after: int = 0, **headers: str) -> list[dict[str, str]]:
    """Read the event stream of a job to its end, and return the fields of each event."""
    answer = await web.get(
        f"/v1/jobs/{job}/events", params={"after": after} if after else {}, headers=headers
    )
    assert answer.headers["content-type"].startswith("text/event-stream")
    blocks = [block for block in answer.text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


async def submitted(web: httpx.AsyncClient, *configs: dict[str, object], **headers: str) -> str:
    answer = await web.post("/v1/jobs", content=json.dumps(configs), headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job"]["id"])


async def test_a_config_can_be_posted_with_curl(web: httpx.AsyncClient, make_config: Config) -> None:
    text = "// goals\n" + json.dumps(
        [make_config("half", FLOP="0.5x"), make_config("small", num_of_params=100)]
    )
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = await web.post("/v1/jobs", content=text, headers=form)
    assert answer.status_code == 201
    job = answer.json()["job"]["id"]
    assert answer.headers["location"] == f"/v1/jobs/{job}"
    await events(web, job)
    part = (await web.get(answer.headers["location"])).json()
    assert (part["job"]["state"], part["goal_count"], part["goals_met"]) == ("done", 2, 2)
    half, _ = part["job"]["goals"]
    assert (half["id"], half["state"], half["spec"]["budget"], half["accuracy"]) == (
        "half",
        "met",
        {"flops": 5_000},
        0.8,
    )


async def test_events_resume_after_the_last_one(web: httpx.AsyncClient, make_config: Config) -> None:
    job = await submitted(web, make_config("half", FLOP="0.5x"))
    every = await events(web, job)
    assert [int(event["id"]) for event in every] == list(range(1, len(every) + 1))
    assert every[-1]["event"] == "job"
    assert json.loads(every[-1]["data"])["event"] == "done"
    assert ("goal", "met") in {
        (event["event"], json.loads(event["data"])["event"])
        for event in every[1:-1]
        if event["event"] == "goal"
    }
    rest = await events(web, job, **{"last-event-id": every[2]["id"]})
    assert rest == every[3:]
    assert await events(web, job, after=3) == every[3:]
    # A reconnecting browser requests the same address, and sends the id of the last event it received.
    assert await events(web, job, after=3, **{"last-event-id": every[4]["id"]}) == every[5:]


async def test_the_same_key_returns_the_same_job(web: httpx.AsyncClient, make_config: Config) -> None:
    half = make_config("half", FLOP="0.5x")
    first = await submitted(web, half, **{"idempotency-key": "k"})
    assert await submitted(web, half, **{"idempotency-key": "k"}) == first
    assert await submitted(web, half) != first
    other = await web.post(
        "/v1/jobs", content=json.dumps(make_config("x", FLOP="0.3x")), headers={"idempotency-key": "k"}
    )
    assert (other.status_code, other.json()["code"]) == (409, "CONFLICT")


async def test_mistakes_are_reported_as_problem_details_with_places(
    web: httpx.AsyncClient, make_config: Config
) -> None:
    wrong = [make_config("half", FLOP="fast"), make_config("small", model="nothing.json", num_of_params=100)]
    for route in ("/v1/jobs", "/v1/plans"):
        answer = await web.post(route, content=json.dumps(wrong))
        assert answer.headers["content-type"] == "application/problem+json"
        details = answer.json()
        assert (answer.status_code, details["status"], details["code"]) == (400, 400, "INVALID_CONFIG")
        assert details["type"] == "urn:mistify:error:INVALID_CONFIG"
        assert "[0].adaptation_goal.FLOP" in {problem["place"] for problem in details["problems"]}
    assert (await web.get("/v1/jobs")).json()["jobs"] == []


async def test_a_plan_starts_nothing(web: httpx.AsyncClient, make_config: Config) -> None:
    answer = await web.post("/v1/plans", content=json.dumps([make_config("half", FLOP="0.5x")]))
    (batch,) = answer.json()["batches"]
    assert [edge["goals"] for edge in batch["edges"]] == [["half"]]
    assert (await web.get("/v1/jobs")).json()["jobs"] == []


async def test_a_job_lists_the_units_of_further_axes(
    web: httpx.AsyncClient, make_config: Config, site: Any
) -> None:
    site.write("measured.json", {"costs": {**COSTS, "energy_mj": 2.0}, "floor": {"flops": 100.0}})
    job = await submitted(web, make_config("half", "measured.json", FLOP="0.5x"))
    await events(web, job)
    (source,) = (await web.get(f"/v1/jobs/{job}")).json()["job"]["sources"]
    (form,) = source["formats"]
    assert form["quantity"] == "energy_mj"
    units = {unit: float(size) for unit, size in form["kind"]["units"].items()}
    assert units == {"": 1, "nJ": 1e-6, "uJ": 1e-3, "mJ": 1, "J": 1e3}


async def test_jobs_and_goals_are_paginated(web: httpx.AsyncClient, make_config: Config) -> None:
    goals = [make_config(f"g{number}", FLOP=f"0.{number}x") for number in range(1, 6)]
    ids = [await submitted(web, *goals) for _ in range(3)]
    first = (await web.get("/v1/jobs", params={"page_size": 2})).json()
    rest = (await web.get("/v1/jobs", params={"page_token": first["next_page_token"]})).json()
    assert [part["job"]["id"] for part in first["jobs"] + rest["jobs"]] == ids[::-1]
    assert rest["next_page_token"] == ""
    seen, token = [], ""
    while not seen or token:
        page = (await web.get(f"/v1/jobs/{ids[0]}", params={"page_size": 2, "page_token": token})).json()
        seen += [goal["id"] for goal in page["job"]["goals"]]
        token = page["next_page_token"]
    assert seen == [str(goal["id"]) for goal in goals]


async def test_goals_are_added_cancelled_and_removed(
    web: httpx.AsyncClient, make_config: Config, site: Any
) -> None:
    job = await submitted(web, make_config("half", FLOP="0.5x"))
    await events(web, job)
    (site.control / "hold-adapt").touch()
    answer = await web.post(f"/v1/jobs/{job}/goals", content=json.dumps([make_config("small", FLOP="0.2x")]))
    assert [goal["id"] for goal in answer.json()["job"]["goals"]] == ["half", "small"]
    assert (await web.delete(f"/v1/jobs/{job}")).status_code == 409
    assert (await web.post(f"/v1/jobs/{job}/cancel")).json()["job"]["state"] == "cancelled"
    until = (await web.delete(f"/v1/jobs/{job}")).json()["undo_until_unix_ms"]
    removed = (await web.get("/v1/jobs", params={"removed": True})).json()["jobs"]
    assert [part["job"]["removed_unix_ms"] + 86_400_000 for part in removed] == [until]
    assert (await web.get("/v1/jobs")).json()["jobs"] == []
    page = (await web.get(f"/jobs/{job}")).text
    assert "This job is removed." in page
    assert "Add goals" not in page
    assert job in (await web.get("/", params={"removed": True})).text
    assert (await web.post(f"/v1/jobs/{job}/restore")).status_code == 204
    assert len((await web.get("/v1/jobs")).json()["jobs"]) == 1
    assert (await web.delete(f"/v1/jobs/{job}", params={"now": True})).json()["freed_bytes"] > 0
    assert (await web.get(f"/v1/jobs/{job}")).status_code == 404
    assert (await web.get(f"/v1/jobs/{job}/events")).status_code == 404


async def test_a_job_is_paused_and_resumed_on_its_page(
    web: httpx.AsyncClient, make_config: Config, site: Any
) -> None:
    (site.control / "hold-source").touch()
    job = await submitted(web, make_config("half", FLOP="0.5x"))
    for action, state, other in (("pause", "paused", "resume"), ("resume", "running", "pause")):
        assert f'data-send="POST /v1/jobs/{job}/{action}"' in (await web.get(f"/jobs/{job}")).text
        assert (await web.post(f"/v1/jobs/{job}/{action}")).json()["job"]["state"] == state
        page = (await web.get(f"/jobs/{job}")).text
        assert f'<span class="state {state}">{state}</span>' in page
        assert f"/v1/jobs/{job}/{other}" in page
        assert f"/v1/jobs/{job}/{action}" not in page
    assert (await web.post("/v1/jobs/none/pause")).status_code == 404
    (site.control / "hold-source").unlink()
    assert "event: job" in (await web.get(f"/v1/jobs/{job}/events")).text
    assert "/resume" not in (await web.get(f"/jobs/{job}")).text


async def test_packages_are_downloaded_as_files_ranges_and_archives(
    web: httpx.AsyncClient, make_config: Config
) -> None:
    job = await submitted(web, make_config("half", FLOP="0.5x"))
    await events(web, job)
    (goal,) = (await web.get(f"/v1/jobs/{job}")).json()["job"]["goals"]
    contents = {}
    for file in goal["files"]:
        address = f"/v1/jobs/{job}/goals/half/files/{file['name']}"
        answer = await web.get(address)
        digest = hashlib.sha256(answer.content)
        assert digest.hexdigest() == file["sha256"]
        assert answer.headers["repr-digest"] == f"sha-256=:{base64.b64encode(digest.digest()).decode()}:"
        part = await web.get(address, headers={"range": "bytes=2-5", "if-range": answer.headers["etag"]})
        assert (part.status_code, part.content) == (206, answer.content[2:6])
        contents[f"half/{file['name']}"] = answer.content
    archive = zipfile.ZipFile(io.BytesIO((await web.get(f"/v1/jobs/{job}/goals/half/package.zip")).content))
    assert {name: archive.read(name) for name in archive.namelist()} == contents
    for missing in ("half/files/other.tflite", "half/files/..%2Flock", "none/package.zip"):
        assert (await web.get(f"/v1/jobs/{job}/goals/{missing}")).status_code == 404


async def test_uploads_resume_and_can_be_named_in_configs(
    web: httpx.AsyncClient, make_config: Config
) -> None:
    model = json.dumps(
        {
            "costs": {"flops": 1e4, "params": 1e3, "memory_bytes": 8e3, "size_bytes": 6e3},
            "floor": {"flops": 100.0, "params": 10.0},
        }
    ).encode()
    digest = hashlib.sha256(model).hexdigest()
    address = f"/v1/files/{digest}"
    broken = await web.put(address, content=model[:50], headers={"content-range": f"bytes 0-49/{len(model)}"})
    assert broken.status_code == 400
    assert (await web.get(address)).json() == {"complete": False, "arrived": 50}
    rest = {"content-range": f"bytes 50-{len(model) - 1}/{len(model)}"}
    answer = await web.put(address, content=model[50:], headers=rest)
    assert answer.json() == {"sha256": digest, "size": len(model), "name": f"upload:{digest}/NAME"}
    assert (await web.get(address)).json()["complete"]
    job = await submitted(web, make_config("half", model=f"upload:{digest}/model.json", FLOP="0.5x"))
    await events(web, job)
    assert (await web.get(f"/v1/jobs/{job}")).json()["goals_met"] == 1


async def test_models_devices_and_groups_are_listed(web: httpx.AsyncClient) -> None:
    assert "digits-resnet" in (await web.get("/v1/models")).json()
    assert (await web.get("/v1/groups")).json() == []
    assert (await web.get("/v1/devices")).status_code == 200


async def test_too_large_a_config_is_refused_without_reading_it(web: httpx.AsyncClient) -> None:
    answer = await web.post("/v1/jobs", content=b" " * (64 * 2**20 + 1))
    assert answer.status_code == 400
    assert "split the config" in answer.json()["detail"]


async def test_the_config_of_a_job_is_returned_as_it_was_submitted(
    web: httpx.AsyncClient, make_config: Config
) -> None:
    text = "// goals\n" + json.dumps([make_config("half", FLOP="0.5x")])
    job = (await web.post("/v1/jobs", content=text)).json()["job"]["id"]
    await web.post(f"/v1/jobs/{job}/goals", json=[make_config("small", num_of_params=100)])
    answer = await web.get(f"/v1/jobs/{job}/config")
    assert answer.text == text
    assert answer.headers["content-type"].startswith("text/plain")
    assert text in html.unescape((await web.get("/submit", params={"like": job})).text)
    assert (await web.get("/v1/jobs/none/config")).json()["code"] == "NOT_FOUND"
    assert (await web.get("/submit", params={"like": "none"})).status_code == 404


async def test_all_packages_of_a_job_are_sent_in_one_archive(
    web: httpx.AsyncClient, site: Any, make_config: Config
) -> None:
    (site.control / "hold-package").touch()
    job = await submitted(web, make_config("half", FLOP="0.5x"), make_config("small", num_of_params=100))
    early = await web.get(f"/v1/jobs/{job}/packages.zip")
    assert (early.status_code, early.json()["code"]) == (404, "NOT_FOUND")
    (site.control / "hold-package").unlink()
    await events(web, job)
    answer = await web.get(f"/v1/jobs/{job}/packages.zip")
    assert answer.headers["content-disposition"] == f'attachment; filename="{job}.zip"'
    together = contents(answer.content)
    alone = [
        contents((await web.get(f"/v1/jobs/{job}/goals/{goal}/package.zip")).content)
        for goal in ("half", "small")
    ]
    assert together == alone[0] | alone[1]
    assert {name.split("/")[0] for name in together} == {"half", "small"}
    keys = KeyChain.model_validate((await web.get("/v1/signing-keys")).json(), extra="ignore")
    for goal in ("half", "small"):
        signature = PackageSignature.model_validate_json(together[f"{goal}/{SIGNATURE_FILE}"])
        assert signature.manifest == hashlib.sha256(together[f"{goal}/{MANIFEST}"]).hexdigest()
        assert (signature.keys, signature.is_valid()) == (keys, True)


def contents(archive: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


async def test_a_job_of_a_newer_version_is_listed_as_such_and_costs_no_other_one(
    web: httpx.AsyncClient, site: Any, make_config: Config
) -> None:
    ids = [await submitted(web, make_config("half", FLOP="0.5x")) for _ in range(2)]
    for job in ids:
        await events(web, job)
    with closing(sqlite3.connect(site.store / "mistify.db")) as connection, connection:
        connection.execute("UPDATE jobs SET state = 'held' WHERE id = ?", ids[1:])
    page = (await web.get("/v1/jobs")).json()
    assert [part["job"]["id"] for part in page["jobs"]] == ids[:1]
    ((_, unreadable_id), (_, reason)) = page["unreadable"][0].items()
    assert unreadable_id == ids[1]
    assert reason.endswith("('held' is not a valid JobState); upgrade this server")
    assert (await web.get(f"/v1/jobs/{ids[1]}")).json()["detail"] == reason
    assert reason in html.unescape((await web.get("/")).text)
    assert (await web.get("/readyz")).status_code == 200
