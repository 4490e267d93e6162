"""Steps between schema versions, in order; each migrates a database from one version to the next.

A step of a released version is never changed. It uses only SQL and plain JSON objects, because the tables in
`schema` and the domain models keep changing. In SQLite, foreign keys are not enforced while steps run, so
that tables can be rebuilt; they are checked after the last step. New steps go to `portable_steps`.
"""

from collections.abc import Callable
from sqlite3 import Connection
from typing import Any, TypeAlias, cast

import sqlalchemy

from mistify_server.store.sql.migrations.early_steps import (
    add_details,
    add_efficiency,
    add_fleet,
    add_source_output_scores,
    add_threads,
    move_preparations_from_roots,
    qualify_targets,
    rename_prospects,
    separate_validation_from_test_scores,
)
from mistify_server.store.sql.migrations.json_columns import change_json
from mistify_server.store.sql.migrations.portable_steps import (
    add_graphs_and_paces,
    add_leases,
    add_priorities_and_limits,
    add_rollouts,
    add_servers,
    add_spared_steps,
    add_tags_and_removals,
    add_tenants,
    add_traces,
)

Step: TypeAlias = Callable[[sqlalchemy.Connection], None]


def _on_sqlite(step: Callable[[Connection], None]) -> Step:
    """Return the step of a function that uses a connection of Python's `sqlite3`."""
    return lambda connection: step(cast(Connection, connection.connection.driver_connection))


def embed_recipes(connection: Connection) -> None:
    """Move the inputs of a plan's networks into its `recipe`."""
    named = {"algorithm_config": "settings"}
    parts = ("model", "data", "algorithm", "algorithm_config", "hardware", "seed")

    def change(plan: dict[str, Any]) -> None:
        plan["recipe"] = {named.get(part, part): plan.pop(part) for part in parts}

    change_json(connection, "batches", "plan", change)


def name_options(connection: Connection) -> None:
    """Identify the options that devices run by ids instead of indices of branches or subnets."""

    def change_status(status: dict[str, Any]) -> None:
        kind = "branch" if status["pool"] is None else "subnet"
        status["option"] = f"{kind}-{status.pop('branch')}"
        status["options"] = status.pop("branches")
        if status["last_switch"] is not None:
            status["last_switch"]["previous"] = f"{kind}-{status['last_switch']['previous']}"

    change_json(connection, "fleet", "status", change_status)


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

    change_json(connection, "batches", "plan", change_plan)


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

    change_json(connection, "batches", "plan", change_plan)
    change_json(connection, "goals", "spec", lambda spec: spec.update(task=None))


def add_served_tasks_and_adaptation(connection: Connection) -> None:
    """Set earlier preparations to list no tasks, and earlier goals to ask for no parts and no adaptation."""

    def change_preparations(preparations: dict[str, Any]) -> None:
        for preparation in preparations.values():
            preparation["served"] = None

    change_json(connection, "batches", "preparations", change_preparations)
    added = {"micro_batch": None, "adaptation": False}
    change_json(connection, "goals", "spec", lambda spec: spec["tuning"].update(added))


def add_exits(connection: Connection) -> None:
    """Set earlier goals to ask for no exits."""
    change_json(connection, "goals", "spec", lambda spec: spec.update(exits=None))


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

    change_json(connection, "batches", "plan", change_plan)
    unknown = "'$.job_share', NULL, '$.seconds_left', NULL"
    connection.execute(f"UPDATE events SET body = json_set(body, {unknown}) WHERE kind = 'progress'")  # noqa: S608 (our own names)
    connection.execute(f"UPDATE curve_points SET point = json_set(point, {unknown})")  # noqa: S608


#: The version from which the first step starts. Older stores cannot be opened.
OLDEST = 13

#: Steps of versions that only knew SQLite.
_ON_SQLITE: tuple[Callable[[Connection], None], ...] = (
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
)

#: The oldest version that can be migrated in any database.
OLDEST_PORTABLE = OLDEST + len(_ON_SQLITE)

STEPS: tuple[Step, ...] = (
    *map(_on_sqlite, _ON_SQLITE),
    add_tags_and_removals,  # to 32
    add_graphs_and_paces,  # to 33
    add_rollouts,  # to 34
    add_traces,  # to 35
    add_priorities_and_limits,  # to 36
    add_tenants,  # to 37
    add_leases,  # to 38
    add_servers,  # to 39
    add_spared_steps,  # to 40
)
