"""Interface of the store of roll-outs."""

from abc import ABC, abstractmethod

from mistify.rollouts import Rollout


class RolloutStore(ABC):
    """Store of a tenant's roll-outs. Every method is one transaction, as with `JobStore`."""

    @abstractmethod
    def all(self) -> list[Rollout]:
        """Return all roll-outs, in the order in which they were started.

        Raises:
            MistifyError: STORE_VERSION, only a newer version can read one of them: without it, it is unknown
                which package a device should run.
        """

    @abstractmethod
    def put(self, rollout: Rollout) -> None:
        """Store a roll-out, replacing its earlier state.

        Raises:
            MistifyError: The roll-out is new, and (NOT_FOUND) there is no such job, or (CONFLICT) the job is
                removed.
        """
