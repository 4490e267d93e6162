"""Steps from schema version 13 to 22; see `steps`."""

import json
from sqlite3 import Connection
from typing import Any

from mistify_server.store.sql.migrations.json_columns import change_json


def rename_prospects(connection: Connection) -> None:
    """Rename the key `prospects` of plans to `estimates`."""

    def rename(plan: dict[str, Any]) -> None:
        plan["estimates"] = plan.pop("prospects")

    change_json(connection, "batches", "plan", rename)


def add_threads(connection: Connection) -> None:
    """Set the number of threads of goals to one, and give each device a profile per number of threads.

    Predictions for a device used the fastest of its measured numbers of threads. Plans keep its model with
    one thread, or with the fewest. Reports of a device measured with several numbers are dropped, because
    they refer to the fastest.
    """
    connection.execute("ALTER TABLE goals ADD COLUMN threads INTEGER NOT NULL DEFAULT 1")

    def change_plan(plan: dict[str, Any]) -> None:
        for profile in plan["hardware"].values():
            if profile["kind"] == "nominal":
                profile["threads"] = 1
            else:
                profile.update(_by_threads(profile)[0], name=profile["name"])
                del profile["models"]

    change_json(connection, "batches", "plan", change_plan)
    rows = connection.execute("SELECT name, profiles, reports FROM devices").fetchall()
    for device, profiles, reports in rows:
        several = any(len(profile["models"]) > 1 for profile in json.loads(profiles))
        changed = [new for old in json.loads(profiles) for new in _by_threads(old)]
        if several:
            changed = [{**profile, "factor": 1.0} for profile in changed]
        values = (json.dumps(changed), "{}" if several else reports, device)
        connection.execute("UPDATE devices SET profiles = ?, reports = ? WHERE name = ?", values)


def _by_threads(profile: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the profiles of a device for each of its numbers of threads, fewest first."""
    rest = {key: value for key, value in profile.items() if key not in ("models", "watts")}
    hardware, *precision = profile["name"].split("@")
    return [
        {
            **rest,
            "name": "@".join([hardware, *([] if threads == 1 else [f"{threads}-threads"]), *precision]),
            "model": profile["models"][str(threads)],
            "threads": threads,
            "watts": profile["watts"].get(str(threads)),
        }
        for threads in sorted(map(int, profile["models"]))
    ]


def add_efficiency(connection: Connection) -> None:
    """Add efficiencies to profiles: no narrower tiles for measured hardware, none for data sheets.

    Predictions of plans and devices stay unchanged, and no algorithm is worse under limits on latency.
    """

    def change(profile: dict[str, Any]) -> None:
        if profile["kind"] == "nominal":
            profile.update(efficiency=None, factor=1.0)
        else:
            profile["kernels"] = None
            for routine in profile["model"]["routines"].values():
                routine["tile"].append(0)

    def change_plan(plan: dict[str, Any]) -> None:
        for profile in plan["hardware"].values():
            change(profile)
        for candidate in (plan["estimates"] or {"candidates": {}})["candidates"].values():
            candidate["gain_at_latency"] = 0.0

    change_json(connection, "batches", "plan", change_plan)
    for device, text in connection.execute("SELECT name, profiles FROM devices").fetchall():
        profiles = json.loads(text)
        for profile in profiles:
            change(profile)
        connection.execute("UPDATE devices SET profiles = ? WHERE name = ?", (json.dumps(profiles), device))


def separate_validation_from_test_scores(connection: Connection) -> None:
    """Add output scores to goals, a reference to batches and output metrics to data; drop records of edges.

    The losses of edges were measured on test data, which must not influence choices. Sources of earlier jobs
    were not measured on test data like their packages, and the forecasts for their goals were not recorded.
    Plans spent no time on generating data.
    """
    connection.execute("DELETE FROM edges")
    connection.execute("ALTER TABLE goals ADD COLUMN output_scores JSON NOT NULL DEFAULT '[]'")
    connection.execute("ALTER TABLE batches ADD COLUMN reference JSON")

    def change_data(data: dict[str, Any]) -> None:
        data["settings"]["metrics"] = {}
        data["labelled"] = True

    def change_plan(plan: dict[str, Any]) -> None:
        plan["dataset"]["metrics"] = {}
        change_data(plan["data"])
        for node in plan["nodes"]:
            node["foreseen"] = None
        if plan["estimates"] is not None:
            plan["estimates"]["generating"] = 0.0

    def change_root(root: dict[str, Any]) -> None:
        if root["data"] is not None:
            change_data(root["data"])

    change_json(connection, "batches", "plan", change_plan)
    change_json(connection, "batches", "root", change_root)


def qualify_targets(connection: Connection) -> None:
    """Add an output and a metric to each target of a goal: until now, all outputs and the goal's metric.

    The output scores of earlier checkpoints and sources are unknown.
    """
    connection.execute("ALTER TABLE checkpoints ADD COLUMN output_scores JSON NOT NULL DEFAULT '[]'")
    connection.execute("ALTER TABLE goals ADD COLUMN targets JSON NOT NULL DEFAULT '[]'")
    connection.execute(
        "UPDATE goals SET targets = json_array(json_object('output', '', 'metric', metric, 'value', "
        "accuracy_target)) WHERE accuracy_target IS NOT NULL"
    )
    connection.execute("ALTER TABLE goals DROP COLUMN accuracy_target")

    def change(plan: dict[str, Any]) -> None:
        metric = plan["data"]["settings"]["metric"] or "accuracy"
        for node in plan["nodes"]:
            value = node.pop("accuracy_target")
            node["targets"] = [] if value is None else [{"output": "", "metric": metric, "value": value}]
        if plan["estimates"] is not None:
            plan["estimates"]["output_scores"] = []

    change_json(connection, "batches", "plan", change)


def add_fleet(connection: Connection) -> None:
    """Create the table of device reports."""
    connection.execute(
        "CREATE TABLE fleet (name VARCHAR NOT NULL, status JSON NOT NULL, seen_unix_ms INTEGER NOT NULL, "
        "PRIMARY KEY (name))"
    )
    connection.execute("CREATE INDEX ix_fleet_seen_unix_ms ON fleet (seen_unix_ms)")


def add_details(connection: Connection) -> None:
    """Create the tables of layers and curves, which are unknown for earlier goals."""
    of_goal = "FOREIGN KEY(job_id, goal_id) REFERENCES goals (job_id, id)"
    connection.execute(
        "CREATE TABLE layers (job_id VARCHAR NOT NULL, goal_id VARCHAR NOT NULL, layers JSON NOT NULL, "
        f"PRIMARY KEY (job_id, goal_id), {of_goal})"
    )
    connection.execute(
        "CREATE TABLE curve_points (job_id VARCHAR NOT NULL, goal_id VARCHAR NOT NULL, "
        "measured BOOLEAN NOT NULL, number INTEGER NOT NULL, sequence INTEGER NOT NULL, point JSON NOT NULL, "
        f"PRIMARY KEY (job_id, goal_id, measured, number), {of_goal})"
    )
    connection.execute(
        "UPDATE events SET body = json_set(body, '$.loss', NULL, '$.relative_costs', json('{}'), "
        "'$.structure_loss_weights', json('{}')) WHERE kind = 'progress'"
    )


def move_preparations_from_roots(connection: Connection) -> None:
    """Move preparations of algorithms from roots to a column, and record their duration by distance.

    Their number of steps is unknown. Only ChamNet and nested networks have preparations; the duration of the
    latter was never predicted.
    """
    connection.execute("ALTER TABLE batches ADD COLUMN preparations JSON NOT NULL DEFAULT '{}'")
    for job, number, text in connection.execute("SELECT job_id, number, root FROM batches").fetchall():
        root = json.loads(text or "null")
        if root is None:
            continue
        preparations = {
            algorithm: {"spent": {}, "kind": "prepare_result", "prepared": artifact, "steps": 0}
            for algorithm, artifact in root.pop("prepared").items()
        }
        values = (json.dumps(root), json.dumps(preparations), job, number)
        connection.execute(
            "UPDATE batches SET root = ?, preparations = ? WHERE job_id = ? AND number = ?", values
        )

    def change_plan(plan: dict[str, Any]) -> None:
        for name, candidate in (plan["estimates"] or {"candidates": {}})["candidates"].items():
            steps = candidate.pop("preparing")
            prepares = bool(steps) or name in ("chamnet", "nested")
            candidate["preparing"] = [steps] * len(candidate["adapting"]) if prepares else []
            candidate["shared_steps"] = 0
            candidate["preparing_step"] = 1.0
            candidate["least_path"] = 1

    def change_record(record: dict[str, Any]) -> None:
        record["case"]["shared_steps"] = 0

    change_json(connection, "batches", "plan", change_plan)
    change_json(connection, "edges", "record", change_record)


def add_source_output_scores(connection: Connection) -> None:
    """Add output scores of sources, unknown for earlier jobs, and the fact that oneDNN was used."""

    def change_root(root: dict[str, Any]) -> None:
        root.update(teacher_scores=[], onednn=True)

    def change_reference(reference: dict[str, Any]) -> None:
        reference.update(output_scores=[], tuned_output_scores=[], onednn=True)

    def change_preparations(preparations: dict[str, Any]) -> None:
        for preparation in preparations.values():
            preparation["onednn"] = True

    change_json(connection, "batches", "root", change_root)
    change_json(connection, "batches", "reference", change_reference)
    change_json(connection, "batches", "preparations", change_preparations)
    change_json(connection, "branches", "result", lambda result: result.update(onednn=True))
    change_json(connection, "edges", "record", lambda record: record.update(outputs=[]))
