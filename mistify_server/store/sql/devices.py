"""Measured devices in the database."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pydantic import TypeAdapter
from sqlalchemy import select
from typing_extensions import override

from mistify.costs.devices import Device, DeviceTable
from mistify.costs.profiles import MeasuredProfile, shrunk_factor
from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.devices import DeviceStore
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.schema import DeviceRow
from mistify_server.store.sql.versions import of_this_version, readable

_DEVICE = TypeAdapter(Device)
_TABLE = TypeAdapter(DeviceTable)
_PROFILES = TypeAdapter(list[MeasuredProfile])
_REPORTS = TypeAdapter(dict[str, dict[str, float]])

_of_this_version = partial(of_this_version, kind="device")


class SqlDeviceStore(DeviceStore):
    """The rows of a tenant in the table `devices`."""

    def __init__(self, database: Database, tenant: str) -> None:
        self._database = database
        self._tenant = tenant

    @override
    def put(self, device: Device, table: DeviceTable, profiles: Sequence[MeasuredProfile]) -> None:
        with self._database.write() as session:
            session.merge(
                DeviceRow(
                    tenant=self._tenant,
                    name=device.name,
                    device=_DEVICE.dump_python(device, mode="json"),
                    readings=_TABLE.dump_python(table, mode="json"),
                    profiles=_PROFILES.dump_python(list(profiles), mode="json"),
                    reports={},
                )
            )

    @override
    def report(self, device: str, profile: str, package: str, deviation: float) -> float:
        with self._database.write() as session:
            row = session.get(DeviceRow, (self._tenant, device))
            if row is None:
                raise _unknown(device)
            with _of_this_version(device):
                known = _PROFILES.validate_python(row.profiles)
                reports = _REPORTS.validate_python(row.reports)
            if profile not in {old.name for old in known}:
                message = f'the device {device} has no profile "{profile}"; profile it again'
                raise MistifyError(ErrorCode.NOT_FOUND, message)
            own = {**reports.get(profile, {}), package: deviation}
            row.reports = {**reports, profile: own}
            factor = shrunk_factor(own.values())
            profiles = [replace(old, factor=factor) if old.name == profile else old for old in known]
            row.profiles = _PROFILES.dump_python(profiles, mode="json")
            return factor

    @override
    def all(self) -> list[Device]:
        with self._database.read() as session:
            own = select(DeviceRow).filter_by(tenant=self._tenant).order_by(DeviceRow.name)
            return list(readable(session.scalars(own), _device))

    @override
    def profiles(self, name: str) -> list[MeasuredProfile]:
        with self._database.read() as session:
            own = select(DeviceRow.profiles).filter_by(tenant=self._tenant, name=name)
            profiles = session.scalar(own)
            with _of_this_version(name):
                return [] if profiles is None else _PROFILES.validate_python(profiles)

    @override
    def table(self, name: str) -> DeviceTable:
        with self._database.read() as session:
            row = session.get(DeviceRow, (self._tenant, name))
            if row is None:
                raise _unknown(name)
            with _of_this_version(name):
                return _TABLE.validate_python(row.readings)


def _device(row: DeviceRow) -> Device:
    with _of_this_version(row.name):
        return _DEVICE.validate_python(row.device)


def _unknown(name: str) -> MistifyError:
    return MistifyError(ErrorCode.NOT_FOUND, f'there is no device "{name}"; `mistify devices` lists them')
