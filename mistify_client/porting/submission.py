"""The job of an output directory: repeating a command returns to the same job."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mistify.errors import MistifyError
from mistify.files.writing import write_json
from mistify.jobs.job import Job, JobPriority, JobState
from mistify_client.rpc.porting import PortingClient

SUBMISSION = ".mistify-job.json"


@dataclass(frozen=True)
class SavedSubmission:
    """The record of a submission.

    Attributes:
        key: The key of its job.
        config_sha256: The SHA-256 of its config.
        server: An address, or the store of a server for one command.
        content_sha256: The SHA-256 of its config with its files identified by their content; empty in records
            of earlier versions.
    """

    key: str
    config_sha256: str
    server: str
    content_sha256: str = ""

    def is_of(self, other: "SavedSubmission") -> bool:
        """Check whether it is a submission of the same config with the same files to the same server."""
        same_files = self.content_sha256 in ("", other.content_sha256)
        return same_files and (self.config_sha256, self.server) == (other.config_sha256, other.server)


def attach(
    client: PortingClient,
    config: str,
    out: Path,
    server: str,
    *,
    content: str = "",
    name: str = "",
    tags: Sequence[str] = (),
    priority: JobPriority = JobPriority.NORMAL,
) -> Job:
    """Submit a config, or return the job that an earlier run started for it.

    A new job is started if the config, one of its files or the server has changed, or if the earlier job
    failed or was cancelled.

    Args:
        config: JSON of the config.
        out: The output directory, in which the submission is recorded.
        server: Identifies the server: an address, or the store of an embedded one.
        content: The config with its files identified by their content; empty if `config` does so.
        name: Name of a new job, for people.
        tags: Tags of a new job.
        priority: Priority of a new job.
    """
    submission = SavedSubmission(uuid.uuid4().hex, _digest(config), server, _digest(content or config))
    earlier = _read(out / SUBMISSION)
    if earlier is not None and earlier.is_of(submission):
        job = client.submit(config, earlier.key, name, tags, priority)
        if job.state not in (JobState.FAILED, JobState.CANCELLED):
            return job
    # The key is recorded before it is used, so that no job is lost if the command is killed in between.
    write_json(out / SUBMISSION, asdict(submission), durable=True)
    try:
        return client.submit(config, submission.key, name, tags, priority)
    except MistifyError as error:
        if error.problems:  # rejected: there is no job to return to
            (out / SUBMISSION).unlink()
        raise


def run_alone(client: PortingClient, job: Job) -> list[str]:
    """Pause the unfinished jobs of earlier commands on a server for one command, and let this job continue.

    Nobody waits for the others: they would only slow this one down. The same command as before continues a
    paused job.

    Returns:
        The ids of the jobs that are paused now.
    """
    others = [part.job for part in client.jobs() if part.job.id != job.id and not part.job.state.ended]
    for other in others:
        if other.state is not JobState.PAUSED:
            client.pause(other.id)
    if job.state is JobState.PAUSED:
        client.resume(job.id)
    return [other.id for other in others]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> SavedSubmission | None:
    """Return the record of an earlier run; None if there is none, or the file is invalid."""
    try:
        return SavedSubmission(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
