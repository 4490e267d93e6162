"""Roll-outs in the database."""

from pydantic import TypeAdapter
from sqlalchemy import select
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import Rollout
from mistify_server.store.rollouts import RolloutStore
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
    def all(self) -> list[Rollout]:
        with self._database.read() as session:
            own = select(RolloutRow).filter_by(tenant=self._tenant).order_by(RolloutRow.number)
            return [_rollout(row) for row in session.scalars(own)]

    @override
    def put(self, rollout: Rollout) -> None:
        content = _ROLLOUT.dump_python(rollout, mode="json")
        with self._database.write() as session:
            row = session.scalar(select(RolloutRow).filter_by(tenant=self._tenant, id=rollout.id))
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


def _rollout(row: RolloutRow) -> Rollout:
    with of_this_version(row.id, "roll-out"):
        return _ROLLOUT.validate_python(row.rollout)
