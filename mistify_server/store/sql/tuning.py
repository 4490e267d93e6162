"""Groups, leases and publications in the database."""

from sqlalchemy import Select, delete, exists, func, select
from sqlalchemy.orm import Session
from typing_extensions import override

from mistify.errors import ErrorCode, MistifyError
from mistify.peers.hints import Hints
from mistify.peers.membership import PackageReference, Publication
from mistify_server.store.sql.database import Database
from mistify_server.store.sql.reading import of_tenant
from mistify_server.store.sql.schema import BatchRow, GroupRow, JobRow, MemberRow, PublicationRow
from mistify_server.store.sql.store_id import store_id
from mistify_server.store.sql.versions import of_this_version, readable
from mistify_server.store.tuning import MOST_MEMBERS, Group, Member, TuningStore


class SqlTuningStore(TuningStore):
    """The tables `tuning_groups`, `tuning_members`, `tuning_publications`.

    Args:
        tenant: The tenant whose groups it knows, which are those of its jobs; None for all groups.
    """

    def __init__(self, database: Database, tenant: str | None = None) -> None:
        self._database = database
        self._tenant = tenant

    @override
    def store_id(self) -> str:
        with self._database.write() as session:
            return store_id(session)

    @override
    def add_group(self, group: Group) -> None:
        with self._database.write() as session:
            if session.get(GroupRow, group.name) is not None:
                raise MistifyError(ErrorCode.CONFLICT, f'there is a group "{group.name}" already')
            if session.get(BatchRow, (group.job_id, group.batch)) is None:
                raise MistifyError(
                    ErrorCode.NOT_FOUND, f"there is no job {group.job_id} with a batch {group.batch}"
                )
            session.add(
                GroupRow(
                    name=group.name,
                    job_id=group.job_id,
                    batch=group.batch,
                    correlation=group.correlation,
                    settings=dict(group.settings),
                )
            )

    @override
    def group(self, name: str) -> Group:
        with self._database.read() as session:
            return _group(self._group_row(session, name))

    @override
    def groups(self) -> list[Group]:
        with self._database.read() as session:
            return [_group(row) for row in session.scalars(self._groups().order_by(GroupRow.name))]

    @override
    def remove_group(self, name: str) -> None:
        with self._database.write() as session:
            row = self._group_row(session, name)
            session.execute(delete(PublicationRow).filter_by(group=name))
            session.execute(delete(MemberRow).filter_by(group=name))
            session.delete(row)

    @override
    def lease(self, member: Member, expires_unix_ms: int) -> None:
        with self._database.write() as session:
            self._group_row(session, member.group)
            if session.get(MemberRow, member) is None:
                self._check_room(session, member.group)
            session.merge(MemberRow(group=member.group, member=member.name, expires_unix_ms=expires_unix_ms))

    @override
    def expiry(self, member: Member) -> int | None:
        with self._database.read() as session:
            known = self._groups().where(GroupRow.name == member.group).exists()
            expiry = select(MemberRow.expires_unix_ms).filter_by(group=member.group, member=member.name)
            return session.scalar(expiry.where(known))

    @override
    def expired(self, now_unix_ms: int, limit: int) -> list[Member]:
        with self._database.read() as session:
            query = select(MemberRow).where(MemberRow.expires_unix_ms <= now_unix_ms).limit(limit)
            return [Member(row.group, row.member) for row in session.scalars(query)]

    @override
    def publish(self, member: Member, publication: Publication) -> str | None:
        with self._database.write() as session:
            if session.get(MemberRow, member) is None:
                raise MistifyError(
                    ErrorCode.NOT_FOUND, f'the group "{member.group}" has no such member; join'
                )
            row = session.get(PublicationRow, member)
            if row is not None and row.version >= publication.version:
                raise MistifyError(
                    ErrorCode.CONFLICT,
                    f"got version {publication.version}; expected a version above {row.version}, the latest",
                )
            before = None if row is None else row.sha256
            session.merge(_row(member, publication))
            return before

    @override
    def published(self, member: Member) -> Publication | None:
        with self._database.read() as session:
            row = session.get(PublicationRow, member)
            return None if row is None else _publication(row)

    @override
    def publications(self, group: str) -> dict[str, Publication]:
        with self._database.read() as session:
            rows = session.scalars(select(PublicationRow).filter_by(group=group))
            return dict(readable(rows, lambda row: (row.member, _publication(row))))

    @override
    def leave(self, member: Member, expired_by: int | None = None) -> str | None:
        with self._database.write() as session:
            lease, published = session.get(MemberRow, member), session.get(PublicationRow, member)
            if lease is None or (expired_by is not None and lease.expires_unix_ms > expired_by):
                return None
            left = None if published is None else published.sha256
            for row in (PublicationRow, MemberRow):
                session.execute(delete(row).filter_by(group=member.group, member=member.name))
            return left

    @override
    def weights(self) -> set[str]:
        with self._database.read() as session:
            return set(session.scalars(select(PublicationRow.sha256)))

    @override
    def has_weights(self, sha256: str) -> bool:
        with self._database.read() as session:
            return bool(session.scalar(select(exists().where(PublicationRow.sha256 == sha256))))

    def _check_room(self, session: Session, group: str) -> None:
        """Raise an error if a group may have no further member."""
        count = session.scalar(select(func.count()).select_from(MemberRow).filter_by(group=group)) or 0
        if count >= MOST_MEMBERS:
            raise MistifyError(
                ErrorCode.NO_ROOM,
                f'the group "{group}" has {count:,} members, and may have {MOST_MEMBERS:,}; those that fall '
                "silent are removed after an hour; or let the operator add another group",
            )

    def _groups(self) -> Select[GroupRow]:
        """Return the query for the groups of the tenant."""
        return select(GroupRow).join(JobRow, JobRow.id == GroupRow.job_id).where(of_tenant(self._tenant))

    def _group_row(self, session: Session, name: str) -> GroupRow:
        row = session.scalar(self._groups().where(GroupRow.name == name))
        if row is None:
            raise MistifyError(
                ErrorCode.NOT_FOUND,
                f'there is no group "{name}"; the operator can add it with mistify-server groups',
            )
        return row


def _group(row: GroupRow) -> Group:
    return Group(row.name, row.job_id, row.batch, row.correlation, row.settings)


def _row(member: Member, publication: Publication) -> PublicationRow:
    return PublicationRow(
        group=member.group,
        member=member.name,
        version=publication.version,
        job_id=publication.package.job_id,
        goal_id=publication.package.goal_id,
        package_sha256=publication.package.sha256,
        loss=publication.loss,
        accuracy=publication.accuracy,
        hints=publication.hints.model_dump(mode="json"),
        size=publication.size,
        sha256=publication.sha256,
    )


def _publication(row: PublicationRow) -> Publication:
    with of_this_version(f"{row.member} of the group {row.group}", "publication of the member"):
        hints = Hints.model_validate(row.hints)
    return Publication(
        package=PackageReference(row.job_id, row.goal_id, row.package_sha256),
        version=row.version,
        loss=row.loss,
        accuracy=row.accuracy,
        hints=hints,
        size=row.size,
        sha256=row.sha256,
    )
