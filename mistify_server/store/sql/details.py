"""Layers, operators and curves of goals in the database."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import bindparam, delete, func, insert, select
from sqlalchemy.orm import Session

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.details import GoalDetails, LayerTable
from mistify.jobs.job import ProgressUpdate
from mistify.jobs.network_graph import NetworkGraph
from mistify_server.store.sql.columns import is_one_of
from mistify_server.store.sql.rows import GoalEvent, last_sequence
from mistify_server.store.sql.schema import CurvePointRow, GoalRow, GraphRow, LayersRow
from mistify_server.store.sql.versions import of_this_version

#: Maximum number of points per curve, besides the last: separately for points with and without accuracy.
MOST_POINTS: Final = 200

_LAYERS: TypeAdapter[LayerTable] = TypeAdapter(LayerTable)
_GRAPH: TypeAdapter[NetworkGraph] = TypeAdapter(NetworkGraph)
_POINT: TypeAdapter[ProgressUpdate] = TypeAdapter(ProgressUpdate)


def layers_row(job_id: str, goal_id: str, layers: LayerTable) -> LayersRow:
    """Return the row for the layers of a goal's network."""
    return LayersRow(job_id=job_id, goal_id=goal_id, layers=_LAYERS.dump_python(layers, mode="json"))


def graph_row(job_id: str, goal_id: str, graph: NetworkGraph) -> GraphRow:
    """Return the row for the operators of a goal's network."""
    return GraphRow(job_id=job_id, goal_id=goal_id, graph=_GRAPH.dump_python(graph, mode="json"))


def details_of(session: Session, job_id: str, goal_id: str) -> GoalDetails:
    """Return the details of a goal, from its rows.

    Raises:
        MistifyError: NOT_FOUND, there is no such goal; STORE_VERSION, this version does not know its values.
    """
    if session.get(GoalRow, (job_id, goal_id)) is None:
        raise MistifyError(ErrorCode.NOT_FOUND, f'the job {job_id} has no goal "{goal_id}"')
    layers = session.get(LayersRow, (job_id, goal_id))
    graph = session.get(GraphRow, (job_id, goal_id))
    points = select(CurvePointRow.point).filter_by(job_id=job_id, goal_id=goal_id)
    curve = session.scalars(points.order_by(CurvePointRow.sequence))
    with of_this_version(job_id):
        return GoalDetails(
            layers=None if layers is None else _LAYERS.validate_python(layers.layers),
            curve=tuple(map(_POINT.validate_python, curve)),
            sequence=last_sequence(session, job_id),
            graph=None if graph is None else _GRAPH.validate_python(graph.graph),
        )


def insert_points(session: Session, job_id: str, events: Iterable[GoalEvent], first: int) -> None:
    """Insert the curve points from simultaneous events, and thin out the curves.

    Every first, second, fourth, ... point is kept, as many as `MOST_POINTS` allows, plus the last point. The
    points stay evenly spaced, and their numbers determine which ones are kept.

    Args:
        first: Sequence number of the first event.
    """
    updates = [
        (sequence, goal_id, event)
        for sequence, (goal_id, event) in enumerate(events, first)
        if goal_id is not None and isinstance(event, ProgressUpdate) and event.on_curve
    ]
    if not updates:
        return
    numbers = _next_numbers(session, job_id, {goal_id for _, goal_id, _ in updates})
    rows = [
        {
            "job_id": job_id,
            "goal_id": goal_id,
            "measured": update.accuracy is not None,
            "number": next(numbers[goal_id, update.accuracy is not None]),
            "sequence": sequence,
            "point": _POINT.dump_python(replace(update, costs={}), mode="json"),
        }
        for sequence, goal_id, update in updates
    ]
    _thin_out(session, rows)
    session.execute(insert(CurvePointRow), rows)


def _next_numbers(
    session: Session, job_id: str, goal_ids: Collection[str]
) -> Mapping[tuple[str, bool], Iterator[int]]:
    """Return the numbers for each series' next points, by goal and whether it has accuracies."""
    points: Any = CurvePointRow.__table__
    query = select(points.c.goal_id, points.c.measured, func.max(points.c.number))
    of_goals = points.c.job_id == job_id, is_one_of(points.c.goal_id, goal_ids)
    last = session.execute(query.where(*of_goals).group_by(points.c.goal_id, points.c.measured))
    numbers = {(goal_id, measured): count(number + 1) for goal_id, measured, number in last}
    return defaultdict(count, numbers)


def _thin_out(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Delete the points of curves that the new points make redundant."""
    points: Any = CurvePointRow.__table__
    others = (
        delete(points)
        .where(*(points.c[name] == bindparam(f"of_{name}") for name in ("job_id", "goal_id", "measured")))
        .where(points.c.number % bindparam("stride") != 0)
    )
    strides = [
        {
            "of_job_id": row["job_id"],
            "of_goal_id": row["goal_id"],
            "of_measured": row["measured"],
            "stride": 1 << (row["number"] // MOST_POINTS).bit_length(),
        }
        for row in rows
    ]
    session.connection().execute(others, strides)
