"""The client of the porting service: plan and submit goals, add more, watch jobs, download packages."""

import hashlib
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mistify.errors import ErrorCode, MistifyError
from mistify.files.locking import locked
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import Goal, Job, JobEvent, JobPriority
from mistify.jobs.part import GoalSelection, JobPart
from mistify.jobs.plan import Plan
from mistify.package.blocks import BLOCKS, BlockStore
from mistify.package.signature import KeyChain
from mistify.quotas import CallerStatus
from mistify.v1 import porting_pb2 as pb
from mistify.wire import porting
from mistify.wire.porting import plan_from_proto
from mistify_client.origin import ORIGIN, Origin
from mistify_client.rpc.connection import Traffic
from mistify_client.rpc.download import ReadFrom, download_package
from mistify_client.rpc.job_control import JOB_SECONDS, JobControl
from mistify_client.rpc.retry import resumed, retried
from mistify_client.rpc.unseen import accepted

#: Deadlines of the calls, in seconds. The server inspects the model before it accepts a batch.
SUBMIT_SECONDS = 300.0
LIST_SECONDS = 30.0

#: Page size for jobs without goals, and for goals; servers may send fewer.
PAGE_SIZE = 1_000
GOALS_PAGE_SIZE = 1_000

logger = logging.getLogger(__name__)

_FIRST_PAGE = pb.GoalSelection(page_size=GOALS_PAGE_SIZE)


class PortingClient(JobControl):
    """A client of the porting service.

    `job`, `watch`, `fetch`, `config` and `report_page` wait for an unreachable server; `cancel` repeats a
    call without a timely response; the other methods fail immediately.
    """

    def submit(
        self,
        config_json: str,
        idempotency_key: str,
        name: str = "",
        tags: Sequence[str] = (),
        priority: JobPriority = JobPriority.NORMAL,
    ) -> Job:
        """Start a job for a batch of configs; the same key returns the same job.

        Args:
            config_json: JSON of the configs.
            idempotency_key: Identifies the submission.
            name: The job's name for people; empty for none.
            tags: The job's tags.
            priority: Jobs with a higher one go first.

        Raises:
            MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all problems, and nothing was
                started; CONFLICT if the key belongs to another batch.
            UnseenJobError: The job has further pages of goals, which the token does not give access to.
        """
        request = pb.SubmitBatchRequest(
            config_json=config_json,
            idempotency_key=idempotency_key,
            goals=_FIRST_PAGE,
            name=name,
            tags=tags,
            priority=porting.priority_to_proto(priority),
        )
        return self._accepted(self._connection.call(self._stub.SubmitBatch, request, SUBMIT_SECONDS))

    def plan(self, config_json: str) -> Plan:
        """Predict the result of a batch of configs: goal tree, algorithms, costs, accuracy and seconds.

        Raises:
            MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all problems, except for
                limits that no network can meet: the plan lists those.
        """
        request = pb.PlanRequest(config_json=config_json)
        return plan_from_proto(self._connection.call(self._stub.Plan, request, SUBMIT_SECONDS))

    def add_goals(self, job_id: str, config_json: str) -> Job:
        """Add goals to a job, each adapted from its nearest looser checkpoint; an ended job continues.

        Repeating the same text adds nothing.

        Args:
            config_json: Configs as in `submit`, with models, data and algorithms of the job, and new ids.

        Raises:
            MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all problems, and nothing was
                added; NOT_FOUND if there is no such job.
            UnseenJobError: The job has further pages of goals, which the token does not give access to.
        """
        key = hashlib.sha256(config_json.encode()).hexdigest()
        request = pb.AddGoalsRequest(
            job_id=job_id, config_json=config_json, idempotency_key=key, goals=_FIRST_PAGE
        )
        return self._accepted(self._connection.call(self._stub.AddGoals, request, SUBMIT_SECONDS))

    def job(self, job_id: str) -> Job:
        """Return the current state of a job."""
        return self._whole(self._part(job_id, GoalSelection(page_size=GOALS_PAGE_SIZE)))

    def with_goal(self, job_id: str, goal_id: str) -> tuple[Job, Goal]:
        """Return the current state of a job without its goals, and one of them.

        Raises:
            MistifyError: NOT_FOUND if there is no such job or goal.
        """
        job = porting.job_from_proto(self._part(job_id, GoalSelection(goal_id=goal_id)))
        for goal in job.goals:
            if goal.id == goal_id:
                return job, goal
        raise MistifyError(ErrorCode.NOT_FOUND, f"job {job_id} has no goal {goal_id!r}")

    def details(self, job_id: str, goal_id: str) -> GoalDetails:
        """Return the layers of a goal's network before and after, and its training curve.

        Raises:
            MistifyError: NOT_FOUND if there is no such job or goal.
        """
        request = pb.GetGoalDetailsRequest(job_id=job_id, goal_id=goal_id)
        return porting.details_from_proto(
            self._connection.call(self._stub.GetGoalDetails, request, JOB_SECONDS)
        )

    def goal_with_package(self, job_id: str, goal_id: str) -> Goal:
        """Return a goal, which must have a package.

        Raises:
            MistifyError: NOT_FOUND if there is no such job or goal, or the goal has no package (yet).
        """
        _, goal = self.with_goal(job_id, goal_id)
        if not goal.files:
            because = f": {goal.reason}" if goal.reason else ""
            raise MistifyError(
                ErrorCode.NOT_FOUND, f"goal {goal_id!r} is {goal.state.value} and has no package{because}"
            )
        return goal

    def jobs(self, search: str = "", *, removed: bool = False) -> Iterator[JobPart]:
        """Yield jobs on the server without their goals, newest first; they are requested page by page.

        Those that only a newer version of the server can read are left out, with a warning in the log.

        Args:
            search: Text in the id, the name, the submitter or a tag of each job, in any case, and `tag:TAG`
                for whole tags; empty for all jobs.
            removed: Yield the removed jobs instead of the others.
        """
        request = pb.ListJobsRequest(
            page_size=PAGE_SIZE, goals=pb.GoalSelection(), search=search, removed=removed
        )
        while True:
            response = self._connection.call(self._stub.ListJobs, request, LIST_SECONDS)
            page = porting.page_from_proto(response)
            yield from page.jobs
            for job in page.unreadable:
                logger.warning("%s", job.reason)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def watch(self, job_id: str, after_sequence: int = 0, *, so_far: bool = False) -> Iterator[JobEvent]:
        """Yield the events of a job after a sequence number, then new ones as they occur, until it ends.

        Args:
            after_sequence: The last known sequence number; 0 for all events.
            so_far: End with the last event so far, even if the job is still running.
        """

        def events(seen: int) -> Iterator[JobEvent]:
            request = pb.WatchJobRequest(job_id=job_id, after_sequence=seen, so_far=so_far, grouped=True)
            for message in self._connection.stream(self._stub.WatchJob, request):
                yield from porting.events_from_proto(message)

        return resumed(events, after_sequence, lambda _, event: event.sequence, self._backoff)

    @property
    def traffic(self) -> Traffic:
        """The number of bytes sent and received."""
        return self._connection.traffic

    def fetch(self, job_id: str, goal_id: str, directory: Path, only: Collection[str] | None = None) -> Goal:
        """Download the package of a goal into a directory, and return the goal.

        An interrupted download (a `*.part` file) is resumed, also in a later call.

        Args:
            directory: The directory for the files; created if it does not exist.
            only: Names of the files to download; None for all.

        Raises:
            MistifyError: NOT_FOUND if the goal has no package (yet); NO_ROOM if it does not fit on the disk;
                CORRUPT_PACKAGE if a file fails verification twice in a row.
            OSError: A file cannot be written.
        """
        goal = self.goal_with_package(job_id, goal_id)
        self._download(job_id, goal, directory, only)
        if only is None:
            (directory / ORIGIN).unlink(missing_ok=True)  # the package is complete
        return goal

    def fetch_without_blocks(self, job_id: str, goal_id: str, directory: Path) -> Goal:
        """Download the package of a goal without its blocks, and record where to download them later.

        Existing blocks are kept; damaged ones are downloaded again.

        Args:
            directory: The directory for the files; created if it does not exist.

        Raises:
            MistifyError: NOT_FOUND if the goal has no package (yet); NO_ROOM if it does not fit on the disk;
                STORE_VERSION if a newer version of Mistify wrote its `blocks.json`; CORRUPT_PACKAGE if a file
                fails verification twice in a row.
            OSError: A file cannot be written.
        """
        goal = self.goal_with_package(job_id, goal_id)
        names = {file.name for file in goal.files}
        if BLOCKS in names:
            self._download(job_id, goal, directory, [BLOCKS])
            blocks = {variant.file for variant in BlockStore.load(directory).variants}
            names -= {block for block in blocks if not (directory / block).exists()}
            self._download(job_id, goal, directory, names)
            with locked(directory):
                Origin(server=self._connection.address, job=job_id, goal=goal_id).save(directory)
        else:
            self._download(job_id, goal, directory, names)
            (directory / ORIGIN).unlink(missing_ok=True)  # belongs to another package
        return goal

    def signing_keys(self) -> KeyChain:
        """Return the public keys with which the server signs packages."""
        request = pb.GetSigningKeysRequest()
        call = self._connection.call
        return porting.keys_from_proto(
            retried(lambda: call(self._stub.GetSigningKeys, request, JOB_SECONDS), self._backoff)
        )

    def config(self, job_id: str) -> str:
        """Return the config with which a job was submitted, without goals that were added later.

        Raises:
            MistifyError: NOT_FOUND if there is no such job.
        """
        request, call = pb.GetConfigRequest(job_id=job_id), self._connection.call
        message: pb.JobConfig = retried(
            lambda: call(self._stub.GetConfig, request, JOB_SECONDS), self._backoff
        )
        return message.config_json

    def caller(self) -> CallerStatus:
        """Return the name and the scopes of this client's token, its limits, and what its holder uses."""
        call = self._connection.call
        return porting.status_from_proto(
            retried(lambda: call(self._stub.GetCaller, pb.GetCallerRequest(), JOB_SECONDS), self._backoff)
        )

    def report_page(self, job_id: str) -> bytes:
        """Return the current state of a job as a self-contained HTML page, in UTF-8.

        Raises:
            MistifyError: NOT_FOUND if there is no such job.
        """
        request = pb.FetchReportRequest(job_id=job_id)
        stream = self._connection.stream
        return retried(
            lambda: b"".join(chunk.data for chunk in stream(self._stub.FetchReport, request)), self._backoff
        )

    def _download(
        self, job_id: str, goal: Goal, directory: Path, only: Collection[str] | None = None
    ) -> None:
        """Download files of a package, as `fetch` does."""
        download_package(goal.files, directory, self._reader(job_id, goal.id), only)

    def _part(self, job_id: str, selection: GoalSelection) -> pb.Job:
        goals = porting.selection_to_proto(selection)
        request = pb.GetJobRequest(job_id=job_id, goals=goals)
        message: pb.Job = retried(
            lambda: self._connection.call(self._stub.GetJob, request, JOB_SECONDS), self._backoff
        )
        return message

    def _accepted(self, message: pb.Job) -> Job:
        with accepted(message.id):
            return self._whole(message)

    def _whole(self, message: pb.Job) -> Job:
        """Return a job with all its goals, requesting the others page by page.

        The job's own fields are from the first page, so that all goals of an ended job have ended.
        """
        job, token = porting.job_from_proto(message), message.next_page_token
        goals = list(job.goals)
        while token:
            page = self._part(job.id, GoalSelection(page_size=GOALS_PAGE_SIZE, page_token=token))
            goals += porting.job_from_proto(page).goals
            token = page.next_page_token
        return replace(job, goals=tuple(goals))

    def _reader(self, job_id: str, goal_id: str) -> ReadFrom:
        def chunks(name: str, offset: int) -> Iterator[bytes]:
            request = pb.FetchPackageRequest(job_id=job_id, goal_id=goal_id, file=name, offset=offset)
            for chunk in self._connection.stream(self._stub.FetchPackage, request):
                yield chunk.data

        def read_from(name: str, offset: int) -> Iterator[bytes]:
            return resumed(
                lambda position: chunks(name, position),
                offset,
                lambda position, data: position + len(data),
                self._backoff,
            )

        return read_from
