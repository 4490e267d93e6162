"""Roll-outs in the database."""

from collections.abc import Mapping

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import Rollout
from mistify_server.store.rollouts import RolloutsChangedError, RolloutStore
from mistify_server.store.sql.columns import is_one_of
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.reading import job_row
from mistify_server.store.sql.schema import RolloutRow
from mistify_server.store.sql.versions import of_this_version

_ROLLOUT = TypeAdapter(Rollout)


class SqlRolloutStore(RolloutStore):
    """The rows of a tenant in the table `rollouts`."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    @override
    def all(self, known: Mapping[str, Rollout] | None = None) -> dict[str, Rollout]:
        earlier = known or {}
        with self._database.read() as session:
            own = select(RolloutRow.id, RolloutRow.state).filter_by(tenant=self._tenant)
            states = {row.id: row.state for row in session.execute(own.order_by(RolloutRow.number))}
            # Those that have ended, and those that are done, only change with their state.
            changed = [id_ for id_ in states if _may_differ(earlier.get(id_), states[id_])]
            rows = session.scalars(select(RolloutRow).where(is_one_of(RolloutRow.id, changed)))
            read = {row.id: _rollout(row) for row in rows} if changed else {}
        unchanged = {id_ for id_ in states if id_ not in read or read[id_] == earlier.get(id_)}
        return {id_: earlier[id_] if id_ in unchanged else read[id_] for id_ in states}

    @override
    def put(self, rollout: Rollout, known: Mapping[str, Rollout]) -> None:
        content = _ROLLOUT.dump_python(rollout, mode="json")
        with self._database.write() as session:
            row = session.scalar(select(RolloutRow).filter_by(tenant=self._tenant, id=rollout.id))
            before = None if row is None else _rollout(row)
            newest = list(known)[-1] if known else None
            if before != known.get(rollout.id) or self._newest(session) != newest:
                raise RolloutsChangedError(rollout.id)
            if row is None:
                if job_row(session, rollout.job_id, self._tenant).removed_unix_ms is not None:
                    raise MistifyError(
                        ErrorCode.CONFLICT,
                        f"the job {rollout.job_id} is removed; restore it before you roll out its packages: "
                        f"mistify restore {rollout.job_id}",
                    )
                row = RolloutRow(tenant=self._tenant, id=rollout.id, job_id=rollout.job_id)
                session.add(row)
            row.state, row.rollout = rollout.state.value, content

    def _newest(self, session: Session) -> str | None:
        own = select(RolloutRow.id).filter_by(tenant=self._tenant).order_by(RolloutRow.number.desc())
        return session.scalar(own.limit(1))


def _may_differ(known: Rollout | None, state: str) -> bool:
    return known is None or known.state.under_way or known.state.value != state


def _rollout(row: RolloutRow) -> Rollout:
    with of_this_version(row.id, "roll-out"):
        return _ROLLOUT.validate_python(row.rollout)
