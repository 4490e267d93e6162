"""Servicer of porting."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from mistify.jobs.job import Job
from mistify.jobs.part import GoalSelection, part_of
from mistify.v1 import porting_pb2 as pb
from mistify.v1 import porting_pb2_grpc
from mistify.wire import porting
from mistify.wire.porting import plan_to_proto
from mistify_server.identity.callers import current_caller
from mistify_server.jobs.event_reads import EventRead
from mistify_server.jobs.package_files import CHUNK, PackageFiles
from mistify_server.jobs.removals import JobRemovals
from mistify_server.jobs.searching import search_of
from mistify_server.jobs.service import PortingService
from mistify_server.usage import UsageService

#: Goals that become a message in less time than another thread takes to begin.
_FEW_GOALS: Final = 10


class PortingServicer(porting_pb2_grpc.PortingServicer):
    """Adapter from gRPC to the service and to the files of packages.

    Args:
        report_page: Renders a job with all its goals as an HTML page.
    """

    def __init__(
        self,
        service: PortingService,
        removals: JobRemovals,
        packages: PackageFiles,
        usage: UsageService,
        report_page: Callable[[Job], str],
    ) -> None:
        self._service = service
        self._removals = removals
        self._packages = packages
        self._usage = usage
        self._report_page = report_page
        self._groups: WeakKeyDictionary[EventRead, pb.JobEvent] = WeakKeyDictionary()

    async def SubmitBatch(self, request: pb.SubmitBatchRequest, context: Any) -> pb.Job:  # noqa: N802
        """Start a job."""
        job = await self._service.submit(
            request.config_json,
            request.idempotency_key,
            request.name,
            request.tags,
            porting.priority_from_proto(request.priority),
        )
        part = part_of(job, _selection(request))
        few = len(part.job.goals) <= _FEW_GOALS
        return porting.part_to_proto(part) if few else await asyncio.to_thread(porting.part_to_proto, part)

    async def Plan(self, request: pb.PlanRequest, context: Any) -> pb.PortingPlan:  # noqa: N802
        """Return the plan of a batch without starting a job."""
        plan = await self._service.plan(request.config_json)
        return await asyncio.to_thread(plan_to_proto, plan)

    async def AddGoals(self, request: pb.AddGoalsRequest, context: Any) -> pb.Job:  # noqa: N802
        """Add goals to a job."""
        await self._service.add_goals(request.job_id, request.config_json, request.idempotency_key)
        return await self._part(request.job_id, request)

    async def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """Return a job."""
        return await self._part(request.job_id, request)

    async def ListJobs(self, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:  # noqa: N802
        """Return a page of jobs."""
        search = search_of(request.search, removed=request.removed)
        page = await self._service.jobs(request.page_size, request.page_token, _selection(request), search)
        return await asyncio.to_thread(porting.page_to_proto, page)

    async def CancelJob(self, request: pb.CancelJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """Cancel a job."""
        await self._service.cancel(request.job_id)
        return await self._part(request.job_id, request)

    async def PauseJob(self, request: pb.PauseJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """Pause a job."""
        await self._service.pause(request.job_id)
        return await self._part(request.job_id, request)

    async def ResumeJob(self, request: pb.ResumeJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """Let a paused job continue."""
        await self._service.resume(request.job_id)
        return await self._part(request.job_id, request)

    async def ChangeJob(  # noqa: N802
        self, request: pb.ChangeJobRequest, context: Any
    ) -> pb.ChangeJobResponse:
        """Change the name, the tags or the priority of a job."""
        name = request.name if request.HasField("name") else None
        tags = request.tags.tags if request.HasField("tags") else None
        changed = request.HasField("priority")
        priority = porting.priority_from_proto(request.priority) if changed else None
        await self._service.change(request.job_id, name, tags, priority)
        return pb.ChangeJobResponse()

    async def RemoveJob(  # noqa: N802
        self, request: pb.RemoveJobRequest, context: Any
    ) -> pb.RemoveJobResponse:
        """Remove a job."""
        if request.now:
            return pb.RemoveJobResponse(freed_bytes=await self._removals.remove(request.job_id))
        return pb.RemoveJobResponse(undo_until_unix_ms=await self._removals.hide(request.job_id))

    async def RestoreJob(  # noqa: N802
        self, request: pb.RestoreJobRequest, context: Any
    ) -> pb.RestoreJobResponse:
        """Restore a removed job."""
        await self._removals.restore(request.job_id)
        return pb.RestoreJobResponse()

    async def WatchJob(  # noqa: N802
        self, request: pb.WatchJobRequest, context: Any
    ) -> AsyncIterator[pb.JobEvent]:
        """Stream the events of a job."""
        async for read in self._service.watch(request.job_id, request.after_sequence, so_far=request.so_far):
            if request.grouped:
                yield self._group(read)
            else:
                for event in read.events:
                    yield porting.event_to_proto(event)

    def _group(self, read: EventRead) -> pb.JobEvent:
        """Return events as one message, which is made once for all watchers."""
        if read not in self._groups:
            self._groups[read] = porting.events_to_proto(read.events)
        return self._groups[read]

    async def GetGoalDetails(  # noqa: N802
        self, request: pb.GetGoalDetailsRequest, context: Any
    ) -> pb.GoalDetails:
        """Return a goal's layers and training curve."""
        return porting.details_to_proto(await self._service.details(request.job_id, request.goal_id))

    async def FetchPackage(  # noqa: N802
        self, request: pb.FetchPackageRequest, context: Any
    ) -> AsyncIterator[pb.PackageChunk]:
        """Stream a file of a package."""
        chunks = self._packages.fetch(request.job_id, request.goal_id, request.file, request.offset)
        async for chunk in chunks:
            yield pb.PackageChunk(data=chunk)

    async def FetchReport(  # noqa: N802
        self, request: pb.FetchReportRequest, context: Any
    ) -> AsyncIterator[pb.ReportChunk]:
        """Stream the report page of a job."""
        part = await self._service.part(request.job_id)
        page = (await asyncio.to_thread(self._report_page, part.job)).encode()
        for offset in range(0, len(page), CHUNK):
            yield pb.ReportChunk(data=page[offset : offset + CHUNK])

    async def GetConfig(  # noqa: N802
        self, request: pb.GetConfigRequest, context: Any
    ) -> pb.JobConfig:
        """Return the config with which a job was submitted."""
        return pb.JobConfig(config_json=await self._service.config_text(request.job_id))

    async def GetSigningKeys(  # noqa: N802
        self, request: pb.GetSigningKeysRequest, context: Any
    ) -> pb.SigningKeys:
        """Return the keys that sign packages."""
        return porting.keys_to_proto(await asyncio.to_thread(self._packages.signing_keys))

    async def GetCaller(self, request: pb.GetCallerRequest, context: Any) -> pb.Caller:  # noqa: N802
        """Return who calls, their limits, and what they use."""
        status = await asyncio.to_thread(self._usage.status, current_caller())
        return porting.status_to_proto(status)

    async def _part(self, job_id: str, request: Any) -> pb.Job:
        """Return a job with the goals that a request selects."""
        part = await self._service.part(job_id, _selection(request))
        return await asyncio.to_thread(porting.part_to_proto, part)


def _selection(request: Any) -> GoalSelection | None:
    return porting.selection_from_proto(request.goals) if request.HasField("goals") else None
