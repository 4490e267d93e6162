"""Reports of devices in the database."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import bindparam, delete, insert, select
from typing_extensions import override

from mistify.fleet import DeviceReport, DeviceStatus
from mistify_server.store.fleet import FleetStore
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.schema import FleetRow

_STATUS = TypeAdapter(DeviceStatus)


class SqlFleetStore(FleetStore):
    """The table `fleet`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def all(self) -> list[DeviceReport]:
        with self._database.read() as session:
            return [
                DeviceReport(
                    _STATUS.validate_python(row.status), datetime.fromtimestamp(row.seen_unix_ms / 1000, UTC)
                )
                for row in session.scalars(select(FleetRow))
            ]

    @override
    def put(self, reports: Iterable[DeviceReport]) -> None:
        rows = [
            {
                "name": report.status.name,
                "status": _STATUS.dump_python(report.status, mode="json"),
                "seen_unix_ms": _unix_ms(report.seen),
            }
            for report in reports
        ]
        table: Any = FleetRow.__table__
        earlier = delete(table).where(table.c.name == bindparam("of"))
        with self._database.write() as session:
            session.connection().execute(earlier, [{"of": row["name"]} for row in rows])
            session.execute(insert(FleetRow), rows)

    @override
    def forget(self, before: datetime) -> None:
        with self._database.write() as session:
            session.execute(delete(FleetRow).where(FleetRow.seen_unix_ms < _unix_ms(before)))


def _unix_ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
