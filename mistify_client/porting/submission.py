"""Which job belongs to an output directory: the same command again finds the same job."""

import hashlib
import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from mistify.errors import MistifyError
from mistify.files import write_json
from mistify.jobs.job import Job, JobState
from mistify_client.rpc.porting import PortingClient

SUBMISSION = ".mistify-job.json"


@dataclass(frozen=True)
class SavedSubmission:
    """A config that was submitted: under which key, its SHA-256, to which server."""

    key: str
    config_sha256: str
    server: str


def attach(client: PortingClient, config: str, out: Path, server: str) -> Job:
    """Submit a config, or come back to the job that an earlier run began for it.

    Another config or another server begins a new job, and so does one that failed or was cancelled.

    Args:
        client: of the server.
        config: the text of the config.
        out: the output directory, which remembers the submission.
        server: tells servers apart: an address, or the store of an embedded one.
    """
    digest = hashlib.sha256(config.encode()).hexdigest()
    earlier = _read(out / SUBMISSION)
    if earlier is not None and (earlier.config_sha256, earlier.server) == (digest, server):
        job = client.submit(config, earlier.key)
        if job.state not in (JobState.FAILED, JobState.CANCELLED):
            return job
    # The key is written down before it is used: a job never gets lost between the two.
    submission = SavedSubmission(uuid.uuid4().hex, digest, server)
    write_json(out / SUBMISSION, asdict(submission), durable=True)
    try:
        return client.submit(config, submission.key)
    except MistifyError as error:
        if error.problems:  # refused: there is no job to come back to
            (out / SUBMISSION).unlink()
        raise


def _read(path: Path) -> SavedSubmission | None:
    """What an earlier run wrote; a file that says anything else is of no use and is written anew."""
    try:
        return SavedSubmission(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
