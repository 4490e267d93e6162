"""The files that rows refer to."""

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

from sqlalchemy import Text, select, text, type_coerce
from sqlalchemy.orm import Session

from mistify.jobs.job import PackageFile
from mistify_server.store.artifacts import artifact_of
from mistify_server.store.references import Reference
from mistify_server.store.sql.schema import (
    BatchRow,
    BranchesRow,
    CheckpointRow,
    CurvePointRow,
    EventRow,
    FileRow,
    GoalRow,
    GraphRow,
    JobRow,
    LayersRow,
    ModelRow,
    Table,
    TokenRow,
)

_DIGEST: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

#: Large tables without references to files, and tokens, whose digests are not those of files.
_WITHOUT_FILES: Final = frozenset(
    row.__tablename__ for row in (GoalRow, EventRow, LayersRow, GraphRow, CurvePointRow, TokenRow)
)

#: An artifact's name as a JSON string.
_ARTIFACT: Final = re.compile(r'"([0-9a-f]{64}\.[a-z0-9]{1,16})"')


class DigestReferences:
    """Finds the digests in rows, with a cache for rows that have not changed since the last call."""

    def __init__(self) -> None:
        self._known: dict[bytes, frozenset[str]] = {}

    def of(self, rows: Iterable[str]) -> set[str]:
        """Return every SHA-256 (hex) in the texts of rows."""
        before, known = self._known, {}
        for row in rows:
            key = blake2b(row.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            known[key] = before[key] if key in before else frozenset(_DIGEST.findall(row))
        self._known = known
        return set().union(*known.values())


def rows_with_digests(session: Session, tenant: str | None = None) -> Iterator[str]:
    """Yield the text of each row that may refer to files.

    Args:
        tenant: Only yield the rows of this tenant's jobs; None for all rows.
    """
    connection = session.connection()
    for table in Table.metadata.sorted_tables:
        job = "id" if table is JobRow.__table__ else "job_id"
        if table.name in _WITHOUT_FILES or (tenant is not None and job not in table.columns):
            continue
        of_jobs = f"WHERE {job} IN (SELECT id FROM jobs WHERE tenant = :tenant)"  # noqa: S608 (our own)
        statement = text(f"SELECT * FROM {table.name} {of_jobs if tenant is not None else ''}")  # noqa: S608
        bound = {} if tenant is None else {"tenant": tenant}
        for row in connection.execute(statement, bound, execution_options={"stream_results": True}):
            yield "\0".join(value for value in row if isinstance(value, str))


def artifact_references(session: Session) -> Iterator[Reference]:
    """Yield the artifacts that rows refer to, each with its user."""
    for model in session.scalars(select(ModelRow)):
        yield Reference(f'the model "{model.name}"', model.artifact)
    for file in session.scalars(select(FileRow)):
        artifact = artifact_of(PackageFile(file.name, file.size, file.sha256))
        yield Reference(f'{file.name} of the goal "{file.goal_id}" of the job {file.job_id}', artifact)
    for row in session.scalars(select(CheckpointRow)):
        user = f"a network in the goal tree of the job {row.job_id} (batch {row.batch}, node {row.node})"
        yield Reference(user, row.artifact)
    results = (
        select(BatchRow.job_id, type_coerce(BatchRow.root, Text)),
        select(BatchRow.job_id, type_coerce(BatchRow.preparations, Text)),
        select(BranchesRow.job_id, type_coerce(BranchesRow.result, Text)),
    )
    for query in results:
        for job_id, result in session.execute(query):
            for artifact in sorted(set(_ARTIFACT.findall(result or ""))):
                yield Reference(f"a source, preparation or branch of the job {job_id}", artifact)
