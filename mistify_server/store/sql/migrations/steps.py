"""Steps between schema versions, in order; each migrates a database from one version to the next.

A step of a released version is never changed. It uses only SQL and plain JSON objects, because the tables in
`schema` and the domain models keep changing. Foreign keys are not enforced while steps run, so that tables
can be rebuilt; they are checked after the last step.
"""

import json
from collections.abc import Callable
from sqlite3 import Connection
from typing import Any, TypeAlias

Step: TypeAlias = Callable[[Connection], None]


def rename_prospects(connection: Connection) -> None:
    """Rename the key `prospects` of plans to `estimates`."""

    def rename(plan: dict[str, Any]) -> None:
        plan["estimates"] = plan.pop("prospects")

    _change_json(connection, "batches", "plan", rename)


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

    _change_json(connection, "batches", "plan", change_plan)
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

    _change_json(connection, "batches", "plan", change_plan)
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

    _change_json(connection, "batches", "plan", change_plan)
    _change_json(connection, "batches", "root", change_root)


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

    _change_json(connection, "batches", "plan", change)


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

    _change_json(connection, "batches", "plan", change_plan)
    _change_json(connection, "edges", "record", change_record)


def add_source_output_scores(connection: Connection) -> None:
    """Add output scores of sources, unknown for earlier jobs, and the fact that oneDNN was used."""

    def change_root(root: dict[str, Any]) -> None:
        root.update(teacher_scores=[], onednn=True)

    def change_reference(reference: dict[str, Any]) -> None:
        reference.update(output_scores=[], tuned_output_scores=[], onednn=True)

    def change_preparations(preparations: dict[str, Any]) -> None:
        for preparation in preparations.values():
            preparation["onednn"] = True

    _change_json(connection, "batches", "root", change_root)
    _change_json(connection, "batches", "reference", change_reference)
    _change_json(connection, "batches", "preparations", change_preparations)
    _change_json(connection, "branches", "result", lambda result: result.update(onednn=True))
    _change_json(connection, "edges", "record", lambda record: record.update(outputs=[]))


def embed_recipes(connection: Connection) -> None:
    """Move the inputs of a plan's networks into its `recipe`."""
    named = {"algorithm_config": "settings"}
    parts = ("model", "data", "algorithm", "algorithm_config", "hardware", "seed")

    def change(plan: dict[str, Any]) -> None:
        plan["recipe"] = {named.get(part, part): plan.pop(part) for part in parts}

    _change_json(connection, "batches", "plan", change)


def name_options(connection: Connection) -> None:
    """Identify the options that devices run by ids instead of indices of branches or subnets."""

    def change_status(status: dict[str, Any]) -> None:
        kind = "branch" if status["pool"] is None else "subnet"
        status["option"] = f"{kind}-{status.pop('branch')}"
        status["options"] = status.pop("branches")
        if status["last_switch"] is not None:
            status["last_switch"]["previous"] = f"{kind}-{status['last_switch']['previous']}"

    _change_json(connection, "fleet", "status", change_status)


def rename_profile_fields(connection: Connection) -> None:
    """Rename fields of algorithm profiles and network features in plans.

    The cost of a halving becomes absolute; it was relative to a rate that the plan did not contain.
    """
    renamed = {
        "edge": "edge_overhead",
        "preparing_step": "preparation_step",
        "preparing": "preparation",
        "adapting": "adaptation",
    }

    def changed(candidate: dict[str, Any]) -> dict[str, Any]:
        rate = 0.03 - candidate.pop("gain")
        del candidate["gain_at_latency"]
        return {"loss_per_halving": rate} | {renamed.get(key, key): of for key, of in candidate.items()}

    def change_plan(plan: dict[str, Any]) -> None:
        estimates = plan["estimates"]
        if estimates is not None:
            estimates["features"] = estimates.pop("traits")
            estimates["profiles"] = {name: changed(of) for name, of in estimates.pop("candidates").items()}

    _change_json(connection, "batches", "plan", change_plan)


def embed_package_specs(connection: Connection) -> None:
    """Move the package settings of goals into one column."""
    of_json = ("budget", "targets", "quantization", "branches", "compression", "tuning")
    values = ", ".join(f"'{part}', json({part})" for part in of_json)
    connection.execute("ALTER TABLE goals ADD COLUMN spec JSON NOT NULL DEFAULT '{}'")
    connection.execute(f"UPDATE goals SET spec = json_object({values}, 'threads', threads)")  # noqa: S608 (our own names)
    for part in (*of_json, "threads"):
        connection.execute(f"ALTER TABLE goals DROP COLUMN {part}")


def add_tasks(connection: Connection) -> None:
    """Set earlier goals, and algorithms in earlier plans, to serve no single task."""

    def change_plan(plan: dict[str, Any]) -> None:
        plan["classes"] = None
        for node in plan["nodes"]:
            node["task"] = None
        for profile in (plan["estimates"] or {"profiles": {}})["profiles"].values():
            profile["serves_tasks"] = False

    _change_json(connection, "batches", "plan", change_plan)
    _change_json(connection, "goals", "spec", lambda spec: spec.update(task=None))


def add_served_tasks_and_adaptation(connection: Connection) -> None:
    """Set earlier preparations to list no tasks, and earlier goals to ask for no parts and no adaptation."""

    def change_preparations(preparations: dict[str, Any]) -> None:
        for preparation in preparations.values():
            preparation["served"] = None

    _change_json(connection, "batches", "preparations", change_preparations)
    added = {"micro_batch": None, "adaptation": False}
    _change_json(connection, "goals", "spec", lambda spec: spec["tuning"].update(added))


def add_exits(connection: Connection) -> None:
    """Set earlier goals to ask for no exits."""
    _change_json(connection, "goals", "spec", lambda spec: spec.update(exits=None))


def add_tokens(connection: Connection) -> None:
    """Add the tokens of callers, and the names of jobs; who submitted earlier jobs is not known."""
    connection.execute(
        "CREATE TABLE tokens (name VARCHAR NOT NULL PRIMARY KEY, sha256 VARCHAR NOT NULL UNIQUE, "
        "scopes VARCHAR NOT NULL, created_unix_ms INTEGER NOT NULL, expires_unix_ms INTEGER)"
    )
    for column in ("submitted_by", "name"):
        connection.execute(f"ALTER TABLE jobs ADD COLUMN {column} VARCHAR NOT NULL DEFAULT ''")


def add_expected_work(connection: Connection) -> None:
    """Set the expected work of earlier plans, and the time left in earlier progress, to unknown."""

    def change_plan(plan: dict[str, Any]) -> None:
        plan |= {"source_seconds": 0.0, "preparing_seconds": {}}
        for node in plan["nodes"]:
            node |= {"steps": 0, "seconds": 0.0, "packaging_seconds": 0.0}

    _change_json(connection, "batches", "plan", change_plan)
    unknown = "'$.job_share', NULL, '$.seconds_left', NULL"
    connection.execute(f"UPDATE events SET body = json_set(body, {unknown}) WHERE kind = 'progress'")  # noqa: S608 (our own names)
    connection.execute(f"UPDATE curve_points SET point = json_set(point, {unknown})")  # noqa: S608


def add_tags_and_removals(connection: Connection) -> None:
    """Add the tags of jobs and the times of their removals; earlier jobs have neither."""
    connection.execute("ALTER TABLE jobs ADD COLUMN tags JSON NOT NULL DEFAULT '[]'")
    connection.execute("ALTER TABLE jobs ADD COLUMN removed_unix_ms INTEGER")


def add_graphs_and_paces(connection: Connection) -> None:
    """Create the table of the operators of networks, which are unknown for earlier packages.

    Earlier plans keep their numbers of training steps, and all preparations of their algorithms are needed.
    """

    def change_plan(plan: dict[str, Any]) -> None:
        plan["recipe"] |= {"pace": 1.0, "source_pace": 1.0}
        for profile in (plan["estimates"] or {"profiles": {}})["profiles"].values():
            profile["preparation_pays_from"] = 0.0

    _change_json(connection, "batches", "plan", change_plan)
    connection.execute(
        "CREATE TABLE graphs (job_id VARCHAR NOT NULL, goal_id VARCHAR NOT NULL, graph JSON NOT NULL, "
        "PRIMARY KEY (job_id, goal_id), FOREIGN KEY(job_id, goal_id) REFERENCES goals (job_id, id))"
    )


#: The version from which the first step starts. Older stores cannot be opened.
OLDEST = 13

STEPS: tuple[Step, ...] = (
    rename_prospects,  # to 14
    add_threads,  # to 15
    add_efficiency,  # to 16
    separate_validation_from_test_scores,  # to 17
    qualify_targets,  # to 18
    add_fleet,  # to 19
    add_details,  # to 20
    move_preparations_from_roots,  # to 21
    add_source_output_scores,  # to 22
    embed_recipes,  # to 23
    name_options,  # to 24
    rename_profile_fields,  # to 25
    embed_package_specs,  # to 26
    add_tasks,  # to 27
    add_served_tasks_and_adaptation,  # to 28
    add_exits,  # to 29
    add_tokens,  # to 30
    add_expected_work,  # to 31
    add_tags_and_removals,  # to 32
    add_graphs_and_paces,  # to 33
)


def _change_json(
    connection: Connection, table: str, column: str, change: Callable[[dict[str, Any]], None]
) -> None:
    """Apply a function to the JSON object, if any, in a column of every row."""
    rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608 (our own names)
    for row, text in rows:
        value = None if text is None else json.loads(text)
        if value is not None:
            change(value)
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (json.dumps(value), row))  # noqa: S608
