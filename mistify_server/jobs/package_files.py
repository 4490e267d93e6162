"""The files of packages, for download."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.jobs.job import PackageFile
from mistify.package.signature import KeyChain
from mistify_server.file_descriptors import most_downloads
from mistify_server.identity.callers import current_caller
from mistify_server.identity.in_progress import InProgress
from mistify_server.store.artifacts import artifact_of
from mistify_server.store.directory import Store

#: Size of the pieces in which files are sent, in bytes.
CHUNK: Final = 256 * 1024

#: Maximum number of archives of a caller at the same time: each is a file as large as its packages.
MOST_ARCHIVES: Final = 2


class PackageFiles:
    """The files of packages, and the keys that sign them.

    Methods with a job and a goal raise `MistifyError` NOT_FOUND for unknown ones, and those of other tenants;
    STORE_VERSION for a goal that only a newer version of Mistify can read.

    Attributes:
        downloads: The files that callers download.
        archives: The archives that are made for callers, until they are sent.
    """

    def __init__(self, store: Store) -> None:
        self._of_tenant = store.of
        self._artifacts = store.artifacts
        self._signing_keys = store.signing_keys
        retry = "try again once one has ended"
        self.downloads = InProgress(most_downloads(), "downloads", retry)
        self.archives = InProgress(MOST_ARCHIVES, "archives", f"{retry}, or download single files")

    def signing_keys(self) -> KeyChain:
        """Return the public keys that sign packages.

        Raises:
            MistifyError: UNAVAILABLE, they cannot be read.
        """
        return self._signing_keys.public()

    async def fetch(self, job_id: str, goal_id: str, file_name: str, offset: int) -> AsyncIterator[bytes]:
        """Yield a file of a goal's package from an offset, in pieces of `CHUNK` bytes.

        Raises:
            MistifyError: INVALID_CONFIG, the offset is not within the file; NOT_FOUND, the goal has no such
                file; CORRUPT_PACKAGE, the file is damaged; UNAVAILABLE, the store cannot be read;
                STORE_REFUSED, its bucket refuses the key; QUOTA_EXCEEDED, the caller downloads too many files
                at the same time.
        """
        file, path = await asyncio.to_thread(self.file, job_id, goal_id, file_name)
        if not 0 <= offset <= file.size:
            raise MistifyError(
                ErrorCode.INVALID_CONFIG,
                f"got the offset {offset:,}; expected 0 to {file.size:,}, the size of {file_name}; "
                "start again from 0",
            )
        with self.downloads.one_more(), path.open("rb") as stream:
            stream.seek(offset)
            while chunk := stream.read(CHUNK):
                yield chunk

    def file(self, job_id: str, goal_id: str, file_name: str) -> tuple[PackageFile, Path]:
        """Return a file of a goal's package, and its path.

        Raises:
            MistifyError: NOT_FOUND, the goal has no such file; CORRUPT_PACKAGE, the file is damaged;
                UNAVAILABLE, the store cannot be read; STORE_REFUSED, its bucket refuses the key.
        """
        files = self._files_of(job_id, goal_id)
        packaged = next((file for file in files if file.name == file_name), None)
        if packaged is None:
            have = ", ".join(file.name for file in files)
            raise MistifyError(
                ErrorCode.NOT_FOUND, f'the goal "{goal_id}" has no file "{file_name}"; it has {have}'
            )
        return packaged, self._intact(goal_id, packaged)

    def files(self, job_id: str, goal_id: str) -> list[tuple[PackageFile, Path]]:
        """Return the files of a goal's package, and their paths.

        Raises:
            MistifyError: NOT_FOUND, there is no such goal or it has no package; CORRUPT_PACKAGE, a file is
                damaged; UNAVAILABLE, the store cannot be read; STORE_REFUSED, its bucket refuses the key.
        """
        return [(file, self._intact(goal_id, file)) for file in self._files_of(job_id, goal_id)]

    def _files_of(self, job_id: str, goal_id: str) -> tuple[PackageFile, ...]:
        goal = self._of_tenant(current_caller().tenant).jobs.goal(job_id, goal_id)
        if not goal.files:
            message = f'the goal "{goal_id}" has no package; its state is {goal.state.value}'
            raise MistifyError(ErrorCode.NOT_FOUND, message)
        return goal.files

    def _intact(self, goal_id: str, file: PackageFile) -> Path:
        try:
            return self._artifacts.intact(artifact_of(file))
        except MistifyError as error:
            if error.code is not ErrorCode.CORRUPT_PACKAGE:
                raise
            raise damaged(goal_id, file) from error


def damaged(goal_id: str, file: PackageFile) -> MistifyError:
    """Return the error for a file of a goal's package that does not have its content any more."""
    return MistifyError(
        ErrorCode.CORRUPT_PACKAGE,
        f'{file.name} of the goal "{goal_id}" is damaged or missing in the server\'s store; port its '
        "config again into another directory, which replaces the file",
    )
