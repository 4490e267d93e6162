"""Model names in the database."""

from typing import Final

from sqlalchemy import bindparam, select
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify_server.store.models import ModelStore, NamedModel
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.schema import ModelRow

#: The fields of `NamedModel` with a key.
_WITH_KEY: Final = select(ModelRow.name, ModelRow.artifact, ModelRow.file_name).where(
    ModelRow.key == bindparam("key")
)


class SqlModelStore(ModelStore):
    """Model names in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @override
    def add(self, model: NamedModel) -> None:
        with self._database.write() as session:
            if session.get(ModelRow, model.name.casefold()) is not None:
                raise MistifyError(
                    ErrorCode.CONFLICT,
                    f'there is a model "{model.name}" already; remove it first or use another name',
                )
            session.add(
                ModelRow(
                    key=model.name.casefold(),
                    name=model.name,
                    artifact=model.artifact,
                    file_name=model.file_name,
                )
            )

    @override
    def find(self, name: str) -> NamedModel | None:
        with self._database.read_rows() as connection:
            row = connection.execute(_WITH_KEY, {"key": name.casefold()}).one_or_none()
            return None if row is None else NamedModel(*row)

    @override
    def all(self) -> list[NamedModel]:
        with self._database.read() as session:
            rows = session.scalars(select(ModelRow).order_by(ModelRow.key))
            return [NamedModel(row.name, row.artifact, row.file_name) for row in rows]

    @override
    def remove(self, name: str) -> None:
        with self._database.write() as session:
            row = session.get(ModelRow, name.casefold())
            if row is None:
                raise MistifyError(ErrorCode.NOT_FOUND, f'there is no model "{name}" in the repository')
            session.delete(row)
