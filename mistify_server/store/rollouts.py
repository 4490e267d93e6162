"""Interface of the store of roll-outs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import Rollout


class RolloutsChangedError(MistifyError):
    """Another server has changed roll-outs since they were read; decide again."""

    def __init__(self, rollout_id: str) -> None:
        super().__init__(
            ErrorCode.CONFLICT,
            f"the roll-out {rollout_id} was decided upon while another server changed roll-outs; try again",
        )


class RolloutStore(ABC):
    """Store of a tenant's roll-outs. Every method is one transaction, as with `JobStore`."""

    @abstractmethod
    def all(self, known: Mapping[str, Rollout] | None = None) -> dict[str, Rollout]:
        """Return all roll-outs by id, in the order in which they were started.

        Args:
            known: Roll-outs that were read before; those that cannot have changed are returned as they are.

        Raises:
            MistifyError: STORE_VERSION, only a newer version can read one of them: without it, it is unknown
                which package a device should run.
        """

    @abstractmethod
    def put(self, rollout: Rollout, known: Mapping[str, Rollout]) -> None:
        """Store a roll-out, replacing its earlier state.

        Args:
            known: All roll-outs as they were when this one was decided upon.

        Raises:
            RolloutsChangedError: This one has changed since, or another one was started.
            MistifyError: The roll-out is new, and (NOT_FOUND) there is no such job, or (CONFLICT) the job is
                removed.
        """
