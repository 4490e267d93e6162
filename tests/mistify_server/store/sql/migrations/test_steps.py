"""Single migration steps with rows that the assets do not contain."""

import json
import sqlite3
from typing import Any

from mistify_server.store.plans import BatchPlan
from mistify_server.store.sql.migrations.early_steps import add_threads, move_preparations_from_roots
from mistify_server.store.sql.migrations.steps import add_expected_work, add_served_tasks_and_adaptation
from mistify_server.tasks.results import PrepareResult


def profile(name: str, *threads: int, watts: bool = False, factor: float = 2.0) -> dict[str, Any]:
    return {
        "name": name,
        "models": {str(count): f"model {count}" for count in threads},
        "integer": name.endswith("int8"),
        "factor": factor,
        "watts": {str(count): 1.5 * count for count in threads} if watts else {},
        "kind": "measured",
    }


def split(name: str, threads: int, *, watts: float | None = None, factor: float = 2.0) -> dict[str, Any]:
    return {
        "name": name,
        "model": f"model {threads}",
        "integer": name.endswith("int8"),
        "threads": threads,
        "factor": factor,
        "watts": watts,
        "kind": "measured",
    }


def test_each_number_of_threads_of_a_device_gets_a_profile() -> None:
    """A report for the fastest of several thread counts says nothing about a single one."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE goals (id TEXT)")
    connection.execute("INSERT INTO goals VALUES ('a')")
    connection.execute("CREATE TABLE batches (plan TEXT)")
    hardware = {
        "pi": {"name": "pi", "kind": "nominal"},
        "one": profile("one", 1, watts=True),
        "four@int8": profile("four@int8", 4, 2),
    }
    connection.execute("INSERT INTO batches VALUES (?)", (json.dumps({"hardware": hardware}),))
    connection.execute("CREATE TABLE devices (name TEXT, profiles TEXT, reports TEXT)")
    for name, profiles in (
        ("one", [profile("one", 1, watts=True), profile("one@int8", 1, factor=1.0)]),
        ("several", [profile("several", 1, 4, watts=True), profile("several@int8", 1, 4)]),
    ):
        values = (name, json.dumps(profiles), json.dumps({name: {"job/goal": 1.5}}))
        connection.execute("INSERT INTO devices VALUES (?, ?, ?)", values)

    add_threads(connection)

    assert connection.execute("SELECT * FROM goals").fetchall() == [("a", 1)]
    ((plan,),) = connection.execute("SELECT plan FROM batches")
    assert json.loads(plan)["hardware"] == {
        "pi": {"name": "pi", "kind": "nominal", "threads": 1},
        "one": split("one", 1, watts=1.5),
        "four@int8": split("four@int8", 2),
    }
    rows = connection.execute("SELECT name, profiles, reports FROM devices ORDER BY name").fetchall()
    assert [(name, json.loads(profiles), json.loads(reports)) for name, profiles, reports in rows] == [
        ("one", [split("one", 1, watts=1.5), split("one@int8", 1, factor=1.0)], {"one": {"job/goal": 1.5}}),
        (
            "several",
            [
                split("several", 1, watts=1.5, factor=1.0),
                split("several@4-threads", 4, watts=6.0, factor=1.0),
                split("several@int8", 1, factor=1.0),
                split("several@4-threads@int8", 4, factor=1.0),
            ],
            {},
        ),
    ]


def test_preparations_made_with_the_source_are_kept() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE batches (job_id TEXT, number INTEGER, plan TEXT, root TEXT)")
    connection.execute("CREATE TABLE edges (record TEXT)")
    connection.execute("INSERT INTO edges VALUES (?)", (json.dumps({"case": {"steps": 5}}),))
    common = {"gain": 0.0, "edge": 150, "adapting": [0, 100], "tune_steps": 600, "max_steps": 3000}
    preparing = {"chamnet": 1_000, "morphnet": 0, "nested": 0}
    candidates = {name: {**common, "preparing": steps} for name, steps in preparing.items()}
    plan = json.dumps({"estimates": {"candidates": candidates}})
    made = json.dumps({"root": "r", "prepared": {"chamnet": "a.prepared"}})
    rows = [("j", 0, plan, made), ("j", 1, json.dumps({"estimates": None}), None)]
    connection.executemany("INSERT INTO batches VALUES (?, ?, ?, ?)", rows)

    move_preparations_from_roots(connection)

    first, second = connection.execute("SELECT plan, root, preparations FROM batches ORDER BY number")
    assert (json.loads(first[1]), second[1:]) == ({"root": "r"}, (None, "{}"))
    prepared = {name: PrepareResult.model_validate(of) for name, of in json.loads(first[2]).items()}
    assert prepared == {"chamnet": PrepareResult(prepared="a.prepared", steps=0)}
    read = json.loads(first[0])["estimates"]["candidates"]
    assert {name: of["preparing"] for name, of in read.items()} == {
        "chamnet": [1_000, 1_000], "morphnet": [], "nested": [0, 0],
    }  # fmt: skip
    ((record,),) = connection.execute("SELECT record FROM edges")
    assert json.loads(record)["case"] == {"steps": 5, "shared_steps": 0}


def test_earlier_preparations_list_no_tasks() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE batches (preparations TEXT)")
    made = PrepareResult(prepared="a.prepared", steps=3)
    old = {"nnfactory": made.model_dump(mode="json", exclude={"served"})}
    connection.executemany("INSERT INTO batches VALUES (?)", [(json.dumps(old),), ("{}",)])
    connection.execute("CREATE TABLE goals (spec)")
    connection.execute("INSERT INTO goals VALUES (?)", [json.dumps({"tuning": {"batch_size": 8}})])

    add_served_tasks_and_adaptation(connection)

    texts = [text for (text,) in connection.execute("SELECT preparations FROM batches")]
    assert [json.loads(text) for text in texts] == [{"nnfactory": made.model_dump(mode="json")}, {}]
    ((spec,),) = connection.execute("SELECT spec FROM goals")
    assert json.loads(spec) == {"tuning": {"batch_size": 8, "micro_batch": None, "adaptation": False}}


def test_the_expected_work_of_earlier_plans_is_unknown(plan: BatchPlan) -> None:
    work = {"steps", "seconds", "packaging_seconds"}
    excluded = {"source_seconds": True, "preparing_seconds": True, "nodes": {"__all__": work}}
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE batches (plan TEXT)")
    connection.execute("INSERT INTO batches VALUES (?)", [plan.model_dump_json(exclude=excluded)])
    connection.execute("CREATE TABLE events (kind TEXT, body TEXT)")
    connection.executemany("INSERT INTO events VALUES (?, ?)", [("job", "{}"), ("progress", '{"step": 1}')])
    connection.execute("CREATE TABLE curve_points (point TEXT)")
    connection.execute("INSERT INTO curve_points VALUES ('{}')")

    add_expected_work(connection)

    unknown = {"job_share": None, "seconds_left": None}
    bodies = [json.loads(body) for (body,) in connection.execute("SELECT body FROM events ORDER BY kind")]
    assert bodies == [{}, {"step": 1, **unknown}]
    assert json.loads(*connection.execute("SELECT point FROM curve_points").fetchone()) == unknown
    ((text,),) = connection.execute("SELECT plan FROM batches")
    assert json.loads(text) == plan.model_dump(mode="json")
