"""The coordinator, independent of gRPC: join, publish, find peers, leave (paper 5)."""

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import IO, Final, Never

from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.package.weights import Tunable, most_bytes, read_weights
from mistify.peers.membership import MOST_PEERS, SECRET_BYTES, MemberKey, Membership, Peer, Publication
from mistify_server.file_descriptors import most_downloads
from mistify_server.identity.callers import current_caller
from mistify_server.identity.in_progress import InProgress
from mistify_server.jobs.package_files import CHUNK
from mistify_server.jobs.store_writer import completed
from mistify_server.store.directory import Store
from mistify_server.store.tuning import Group, Member, TuningStore
from mistify_server.tuning.neighbourhoods import Neighbourhood, Neighbourhoods
from mistify_server.tuning.packages import PublishedModels
from mistify_server.tuning.storage import IndexStorage
from mistify_server.tuning.uploads import WeightFiles, received

#: Duration of a member's lease; expired members are removed within a minute.
LEASE_SECONDS: Final = 3600.0
_EXPIRY_INTERVAL: Final = 60.0

#: Interval between cleanups after the operator's commands and crashes.
SWEEP_SECONDS: Final = 3600.0

#: Number of expired members removed before other calls get a turn: a whole fleet may expire at once.
_FORGOTTEN_AT_ONCE: Final = 20

_log = logging.getLogger(__name__)

_DIGEST = re.compile(r"[0-9a-f]{64}")


class TuningService:
    """The coordinator for one store. Every method raises `MistifyError`; NOT_FOUND for anything missing.

    Groups of other tenants than the caller's are missing, too. Only threads wait for the store.

    Args:
        storage: The storage for the indexes.
        now: Returns seconds since 1970.
        most_bytes: Limit on the total size of published weights.
    """

    def __init__(
        self,
        store: Store,
        storage: IndexStorage,
        now: Callable[[], float] = time.time,
        *,
        most_bytes: float = math.inf,
    ) -> None:
        self._of_tenant = store.of
        self._tuning = store.tuning
        self._packages = PublishedModels(store)
        self._weights = WeightFiles(store.weights, store.tuning, most_bytes)
        self._neighbourhoods = Neighbourhoods(store.tuning, storage)
        self._now = now
        self._swept_at = now()
        self._downloads = InProgress(most_downloads(), "downloads of weights", "try again later")

    def groups(self) -> list[Group]:
        """Return the groups that devices of the caller's tenant can join."""
        return self._own.groups()

    @property
    def _own(self) -> TuningStore:
        """Return the groups of the caller's tenant."""
        return self._of_tenant(current_caller().tenant).tuning

    def sweep(self) -> None:
        """Remove weights left behind by a crash, and count the others."""
        self._weights.sweep()

    async def tidy(self) -> None:
        """Remove weights and indexes of removed groups."""
        for digest in await asyncio.to_thread(self._weights.unpublished):
            await self._weights.collect(digest)
        await self._neighbourhoods.sweep()

    async def upkeep(self) -> Never:
        """Remove members with expired leases and tidy periodically, until cancelled."""
        while True:
            more = False
            try:
                more = await self.forget_silent()
                if self._now() - self._swept_at >= SWEEP_SECONDS:
                    await self.tidy()
                    self._swept_at = self._now()
            except MistifyError as error:
                _log.warning("the cleanup failed, retrying in a minute: %s", error)
            except Exception:
                _log.exception("the cleanup failed; retrying in a minute")
            await asyncio.sleep(0 if more else _EXPIRY_INTERVAL)

    async def forget_silent(self) -> bool:
        """Remove members with expired leases, and return whether there may be more."""
        now_ms = int(1000 * self._now())
        expired = await asyncio.to_thread(self._tuning.expired, now_ms, _FORGOTTEN_AT_ONCE)
        for member in expired:
            await self._forget(member, now_ms)
        return len(expired) == _FORGOTTEN_AT_ONCE

    async def join(self, key: MemberKey) -> Membership:
        """Add the caller to a group, or renew its membership.

        Raises:
            MistifyError: INVALID_PUBLICATION, the secret is not `SECRET_BYTES` long; NO_ROOM, the group has
                too many members.
        """
        return await asyncio.to_thread(self._join, key)

    def _join(self, key: MemberKey) -> Membership:
        group = self._own.group(key.group)
        if len(key.secret) != SECRET_BYTES:
            problem = Problem("secret", f"{len(key.secret)} bytes", f"{SECRET_BYTES} random ones", "make one")
            raise MistifyError(ErrorCode.INVALID_PUBLICATION, "the device cannot join", [problem])
        member = Member(group.name, key.member)
        self._renew(member)
        published = self._tuning.published(member)
        version = 0 if published is None else published.version
        return Membership(key.member, LEASE_SECONDS, group.correlation, group.settings, version)

    async def publish(self, key: MemberKey, publication: Publication, chunks: AsyncIterator[bytes]) -> None:
        """Store a member's tuned weights, replacing its earlier ones.

        Args:
            publication: Describes the model. Repeating the current version with the same weights is accepted
                and changes nothing, so that a member can retry after a lost response.
            chunks: The file with the weights, in pieces.

        Raises:
            MistifyError: INVALID_PUBLICATION, with every problem found; CONFLICT, the version is stale;
                NO_ROOM, the weights of all groups take too much.
        """
        member, group, before = await asyncio.to_thread(self._calling, key)
        neighbourhood = self._neighbourhoods.of(group)
        tunable = await asyncio.to_thread(self._packages.tunable, group, publication.package)
        neighbourhood.check(publication.hints)
        if problems := list(_problems(publication, tunable)):
            raise MistifyError(ErrorCode.INVALID_PUBLICATION, "the model cannot be published", problems)
        if before is not None and _is_repetition(publication, before):
            # The index may have been unavailable the first time.
            await neighbourhood.place(member.name, publication.hints)
            return
        with self._weights.room(publication.size - (0 if before is None else before.size)):
            async with received(publication, chunks, self._weights.incoming()) as path:
                await asyncio.to_thread(read_weights, path, tunable)
                async with self._weights.kept(path, publication.sha256):
                    await completed(self._replace(member, publication, neighbourhood))

    async def _replace(self, member: Member, publication: Publication, neighbourhood: Neighbourhood) -> None:
        """Record a publication in place of the member's earlier one, whose weights are removed."""
        before = await asyncio.to_thread(self._tuning.publish, member, publication)
        if before is not None:
            await self._weights.collect(before)
        await neighbourhood.place(member.name, publication.hints)

    async def peers(self, key: MemberKey, count: int, held: Mapping[str, int]) -> AsyncIterator[Peer | bytes]:
        """Yield the models of the most correlated other members, most correlated first.

        Args:
            key: The key of a member that has published.
            count: Maximum number of peers, limited to `MOST_PEERS`.
            held: SHA-256 of weights -> number of leading bytes to skip.

        Returns:
            Each peer, followed by its weights in pieces of `CHUNK` bytes.
        """
        member, group, own = await asyncio.to_thread(self._calling, key)
        if own is None:
            raise MistifyError(ErrorCode.NOT_FOUND, "you have no peers yet; publish a model first")
        neighbourhood = self._neighbourhoods.of(group)
        for neighbour in await neighbourhood.nearest(member.name, own.hints, max(1, min(count, MOST_PEERS))):
            opened = await asyncio.to_thread(self._opened, Member(member.group, neighbour.member))
            if opened is None:  # it has left, or its group was removed and re-added
                neighbourhood.forget(neighbour.member)
                continue
            publication, file = opened
            with file, self._downloads.one_more():
                yield _peer(neighbour.member, publication, neighbour.distance)
                file.seek(max(0, held.get(publication.sha256, 0)))
                while chunk := file.read(CHUNK):
                    yield chunk

    def _opened(self, member: Member) -> tuple[Publication, IO[bytes]] | None:
        """Return a member's latest publication and its weights; None if it has none."""
        publication = self._tuning.published(member)
        if publication is None:
            return None
        try:
            return publication, self._weights.path(publication.sha256).open("rb")
        except (MistifyError, FileNotFoundError):
            if self._tuning.published(member) == publication:
                raise
            return self._opened(member)  # it was replaced meanwhile

    async def leave(self, key: MemberKey) -> None:
        """Remove the caller from its group, if it is a member."""
        member = Member(key.group, key.member)
        if await asyncio.to_thread(self._own.expiry, member) is not None:
            await self._forget(member)

    def _calling(self, key: MemberKey) -> tuple[Member, Group, Publication | None]:
        """Return the calling member, its group, and its latest publication.

        Its lease is renewed once half of it has expired.
        """
        member = Member(key.group, key.member)
        expiry = self._own.expiry(member)
        if expiry is None:
            raise MistifyError(
                ErrorCode.NOT_FOUND,
                f'you are not a member of a group "{key.group}", or your membership has expired; join',
            )
        if expiry / 1000 - self._now() < LEASE_SECONDS / 2:
            self._renew(member)
        return member, self._tuning.group(member.group), self._tuning.published(member)

    def _renew(self, member: Member) -> None:
        self._tuning.lease(member, int(1000 * (self._now() + LEASE_SECONDS)))

    async def _forget(self, member: Member, expired_ms: int | None = None) -> None:
        """Remove a member, unless its lease ends after a time in Unix milliseconds: it has just called."""
        await completed(self._forget_now(member, expired_ms))

    async def _forget_now(self, member: Member, expired_ms: int | None) -> None:
        weights = await asyncio.to_thread(self._tuning.leave, member, expired_ms)
        if weights is not None:
            await self._weights.collect(weights)
            self._neighbourhoods.forget(member.group, member.name)


def _problems(publication: Publication, tunable: Tunable) -> Iterator[Problem]:
    most = most_bytes(tunable)
    if publication.version < 1:
        yield Problem("version", str(publication.version), "1 or more", "count what you publish")
    if not math.isfinite(publication.loss):
        yield Problem("loss", str(publication.loss), "a finite number", "tune at a lower learning rate")
    if not 0 <= publication.accuracy <= 1:
        yield Problem("accuracy", str(publication.accuracy), "a share from 0 to 1", "divide by the examples")
    if not 1 <= publication.size <= most:
        yield Problem("size", f"{publication.size:,} bytes", f"1 to {most:,}", "send only the tuned weights")
    if not _DIGEST.fullmatch(publication.sha256):
        yield Problem("sha256", f'"{publication.sha256[:80]}"', "64 hex digits", "digest the weights")


def _is_repetition(publication: Publication, before: Publication) -> bool:
    """Check whether a publication repeats the previous one.

    Raises:
        MistifyError: CONFLICT, the version is stale.
    """
    if publication.version > before.version:
        return False
    if (publication.version, publication.sha256) == (before.version, before.sha256):
        return True
    raise MistifyError(
        ErrorCode.CONFLICT,
        f"version {publication.version} is stale; expected a version above {before.version}, the latest",
    )


def _peer(member: str, publication: Publication, distance: float) -> Peer:
    return Peer(
        member=member,
        package=publication.package,
        version=publication.version,
        loss=publication.loss,
        accuracy=publication.accuracy,
        distance=distance,
        size=publication.size,
        sha256=publication.sha256,
    )
