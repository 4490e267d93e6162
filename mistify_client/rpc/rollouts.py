"""The client of the roll-outs service: start, list, pause, resume and roll back."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from mistify.rollouts import NewRollout, RolloutProgress
from mistify.v1 import rollouts_pb2 as pb
from mistify.v1.rollouts_pb2_grpc import RolloutsStub
from mistify.wire import rollouts as wire
from mistify_client.rpc.base import ServiceClient
from mistify_client.rpc.retry import retried

#: Deadline of a call, in seconds.
CALL_SECONDS = 30.0


class RolloutsClient(ServiceClient):
    """A client of the roll-outs service.

    All methods except `start` wait for an unreachable server, and may be repeated. They raise NOT_FOUND for
    an unknown roll-out.
    """

    @cached_property
    def _stub(self) -> RolloutsStub:
        return RolloutsStub(self._connection.channel)  # type: ignore[no-untyped-call]  # generated code

    def start(self, new: NewRollout) -> RolloutProgress:
        """Start a roll-out.

        Raises:
            MistifyError: INVALID_CONFIG with every problem; NOT_FOUND, the goal has no package; CONFLICT, the
                package is being replaced by another roll-out.
        """
        request = wire.new_rollout_to_proto(new)
        return wire.progress_from_proto(self._connection.call(self._stub.StartRollout, request, CALL_SECONDS))

    def rollouts(self) -> list[RolloutProgress]:
        """Return the newest roll-outs, the last one first."""
        answer = self._call(self._stub.ListRollouts, pb.ListRolloutsRequest())
        return [wire.progress_from_proto(each) for each in answer.rollouts]

    def rollout(self, rollout_id: str) -> RolloutProgress:
        """Return a roll-out."""
        return self._of(self._stub.GetRollout, rollout_id)

    def pause(self, rollout_id: str) -> RolloutProgress:
        """Pause a roll-out: no further device gets the package; those that have it keep it.

        Raises:
            MistifyError: CONFLICT, it has ended.
        """
        return self._of(self._stub.PauseRollout, rollout_id)

    def resume(self, rollout_id: str) -> RolloutProgress:
        """Undo a pause; the minimum time of the stage starts again.

        Raises:
            MistifyError: CONFLICT, it has ended.
        """
        return self._of(self._stub.ResumeRollout, rollout_id)

    def roll_back(self, rollout_id: str) -> RolloutProgress:
        """End a roll-out, and return its devices to their previous package.

        Raises:
            MistifyError: CONFLICT, it has stopped by itself, or a later one has replaced its package.
        """
        return self._of(self._stub.RollBack, rollout_id)

    def _of(self, method: Callable[..., Any], rollout_id: str) -> RolloutProgress:
        return wire.progress_from_proto(self._call(method, pb.RolloutId(id=rollout_id)))

    def _call(self, method: Callable[..., Any], request: object) -> Any:
        return retried(lambda: self._connection.call(method, request, CALL_SECONDS), self._backoff)
