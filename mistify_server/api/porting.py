"""Servicer of porting."""

from collections.abc import AsyncIterator
from typing import Any

from mistify.v1 import porting_pb2 as pb
from mistify.v1 import porting_pb2_grpc
from mistify.wire import porting
from mistify.wire.porting import plan_to_proto
from mistify_server.jobs.service import PortingService


class PortingServicer(porting_pb2_grpc.PortingServicer):
    """Adapter from gRPC to the service."""

    def __init__(self, service: PortingService) -> None:
        self._service = service

    async def SubmitBatch(self, request: pb.SubmitBatchRequest, context: Any) -> pb.Job:  # noqa: N802
        """Start a job."""
        return porting.job_to_proto(await self._service.submit(request.config_json, request.idempotency_key))

    async def Plan(self, request: pb.PlanRequest, context: Any) -> pb.PortingPlan:  # noqa: N802
        """Return the plan of a batch without starting it."""
        return plan_to_proto(await self._service.plan(request.config_json))

    async def AddGoals(self, request: pb.AddGoalsRequest, context: Any) -> pb.Job:  # noqa: N802
        """Add goals to a job."""
        service, key = self._service, request.idempotency_key
        return porting.job_to_proto(await service.add_goals(request.job_id, request.config_json, key))

    async def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """Show a job."""
        return porting.job_to_proto(self._service.job(request.job_id))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:  # noqa: N802
        """Show a page of jobs."""
        jobs, next_token = await self._service.jobs(request.page_size, request.page_token)
        return pb.ListJobsResponse(jobs=map(porting.job_to_proto, jobs), next_page_token=next_token)

    async def CancelJob(self, request: pb.CancelJobRequest, context: Any) -> pb.Job:  # noqa: N802
        """Stop a job."""
        return porting.job_to_proto(await self._service.cancel(request.job_id))

    async def WatchJob(  # noqa: N802
        self, request: pb.WatchJobRequest, context: Any
    ) -> AsyncIterator[pb.JobEvent]:
        """Follow a job."""
        async for event in self._service.watch(request.job_id, request.after_sequence):
            yield porting.event_to_proto(event)

    async def FetchPackage(  # noqa: N802
        self, request: pb.FetchPackageRequest, context: Any
    ) -> AsyncIterator[pb.PackageChunk]:
        """Send a file of a package."""
        chunks = self._service.fetch(request.job_id, request.goal_id, request.file, request.offset)
        async for chunk in chunks:
            yield pb.PackageChunk(data=chunk)
