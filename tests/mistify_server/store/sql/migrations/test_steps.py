"""What single steps do with rows that the assets do not have."""

import json
import sqlite3
from typing import Any

from mistify_server.store.sql.migrations.steps import add_threads


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
    """What was reported of the fastest of several numbers says nothing of a single one."""
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
