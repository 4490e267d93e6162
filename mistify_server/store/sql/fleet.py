"""Reports of devices in the database."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import bindparam, delete, insert, select
from typing_extensions import override

from mistify.fleet import DeviceReport, DeviceStatus
from mistify_server.store.fleet import FleetStore
from mistify_server.store.sql.columns import is_one_of
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.schema import FleetRow
from mistify_server.store.sql.versions import of_this_version, readable

_STATUS = TypeAdapter(DeviceStatus)


class SqlFleetStore(FleetStore):
    """The rows of a tenant in the table `fleet`."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    @override
    def all(self) -> list[DeviceReport]:
        with self._database.read() as session:
            return list(readable(session.scalars(select(FleetRow).filter_by(tenant=self._tenant)), _report))

    @override
    def seen(self) -> dict[str, datetime]:
        with self._database.read_rows() as connection:
            own = select(FleetRow.name, FleetRow.seen_unix_ms).where(FleetRow.tenant == self._tenant)
            return {name: _moment(seen_unix_ms) for name, seen_unix_ms in connection.execute(own)}

    @override
    def named(self, names: Collection[str]) -> list[DeviceReport]:
        if not names:
            return []
        with self._database.read() as session:
            own = select(FleetRow).where(FleetRow.tenant == self._tenant, is_one_of(FleetRow.name, names))
            return list(readable(session.scalars(own), _report))

    @override
    def put(self, reports: Iterable[DeviceReport]) -> None:
        rows = [
            {
                "tenant": self._tenant,
                "name": report.status.name,
                "status": _STATUS.dump_python(report.status, mode="json"),
                "seen_unix_ms": _unix_ms(report.seen),
            }
            for report in reports
        ]
        table: Any = FleetRow.__table__
        earlier = delete(table).where(table.c.tenant == self._tenant, table.c.name == bindparam("of"))
        with self._database.write() as session:
            session.connection().execute(earlier, [{"of": row["name"]} for row in rows])
            session.execute(insert(FleetRow), rows)

    @override
    def forget(self, before: datetime) -> None:
        with self._database.write() as session:
            silent = FleetRow.tenant == self._tenant, FleetRow.seen_unix_ms < _unix_ms(before)
            session.execute(delete(FleetRow).where(*silent))


def _report(row: FleetRow) -> DeviceReport:
    with of_this_version(row.name, "report of the device"):
        status = _STATUS.validate_python(row.status)
    return DeviceReport(status, _moment(row.seen_unix_ms))


def _moment(unix_ms: int) -> datetime:
    return datetime.fromtimestamp(unix_ms / 1000, UTC)


def _unix_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
