"""The services of roll-outs: started, followed and ended. Independent of gRPC and HTTP."""

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Final

from mistify.errors import ErrorCode, MistifyError
from mistify.fleet import DeviceStatus
from mistify.package.manifest import MANIFEST
from mistify.parsing.quantities import format_share
from mistify.rollouts import (
    Instruction,
    NewRollout,
    Rollout,
    RolloutProgress,
    RolloutState,
    check_new_rollout,
)
from mistify.times import utc_now
from mistify_server.fleet import Fleet
from mistify_server.identity.callers import current_caller
from mistify_server.names import new_id
from mistify_server.rollouts.devices import RolloutDevices
from mistify_server.rollouts.judging import judged, outcome_of
from mistify_server.rollouts.members import is_addressed
from mistify_server.store.jobs import JobStore
from mistify_server.store.rollouts import RolloutsChangedError, RolloutStore

#: Maximum number of roll-outs in a list.
MOST_LISTED: Final = 20

_log = logging.getLogger(__name__)


class RolloutService:
    """The roll-outs of a tenant, and the devices of its fleet that they address.

    Which device has which package is in the reports of the fleet, so that only the roll-outs themselves are
    stored. Thread-safe. `instruction` answers at once; everything else uses the store or goes through the
    fleet, and is for other threads than that of the event loop.

    Servers that share a store share its roll-outs. Each may change them and judge their stages: a change is
    stored only if it was decided upon the roll-outs that are in the store, and otherwise decided again.

    While only a newer version can read one of the roll-outs, all methods except `instruction` and `advance`
    raise STORE_VERSION, and devices keep the packages that they have.
    """

    def __init__(
        self, store: RolloutStore, jobs: JobStore, fleet: Fleet, now: Callable[[], datetime] = utc_now
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._now = now
        self._devices = RolloutDevices(fleet, now)
        self._changing = threading.Lock()
        self._reading = threading.Lock()  # apart from changes, during which devices are answered
        self._unreadable: MistifyError | None = None
        self._rollouts: dict[str, Rollout] = {}
        self._keep(self._stored())

    def refresh(self) -> None:
        """Take over the changes of other servers.

        Raises:
            MistifyError: UNAVAILABLE, the store cannot be read.
        """
        self._latest()

    def _latest(self) -> dict[str, Rollout]:
        """Return the roll-outs of the store; they are kept in the order in which they are read."""
        with self._reading:
            rollouts = self._stored()
            if rollouts != self._rollouts:
                self._keep(rollouts)
            return self._rollouts

    def _stored(self) -> dict[str, Rollout]:
        try:
            rollouts = self._store.all(self._rollouts)
        except MistifyError as error:
            if error.code is not ErrorCode.STORE_VERSION:
                raise
            if self._unreadable is None:
                _log.error("there are no roll-outs until the server is upgraded: %s", error)
            self._unreadable = error
            return {}
        self._unreadable = None
        return rollouts

    def _check_readable(self) -> None:
        """Raise an error if only a newer version can read a roll-out; devices keep their packages."""
        if self._unreadable is not None:
            raise self._unreadable

    def start(self, new: NewRollout) -> RolloutProgress:
        """Start a roll-out.

        Raises:
            MistifyError: INVALID_CONFIG with every problem; NOT_FOUND, there is no such goal, or it has no
                package; CONFLICT, another roll-out of the same package is under way, or the job is removed;
                UNAVAILABLE, the store cannot be written.
        """
        check_new_rollout(new)
        digest = self._digest(new.job_id, new.goal_id)

        def change(known: Mapping[str, Rollout]) -> RolloutProgress:
            for other in known.values():
                if other.state.under_way and other.package == new.package:
                    raise MistifyError(
                        ErrorCode.CONFLICT,
                        f'the roll-out {other.id} of the package "{new.package}" is {other.state}; wait '
                        f"until it is done, or end it: mistify rollout back {other.id}",
                    )
            return self._saved(self._new(new, digest), known)

        return self._changed(change)

    def _changed(self, change: Callable[[Mapping[str, Rollout]], RolloutProgress]) -> RolloutProgress:
        """Make a change to the roll-outs of the store, again if another server was faster."""
        with self._changing:
            while True:
                known = self._latest()
                self._check_readable()
                with suppress(RolloutsChangedError):
                    return change(known)

    def _new(self, new: NewRollout, digest: str) -> Rollout:
        now = self._now()
        now_ms = int(now.timestamp() * 1000)
        return Rollout(
            id=new_id(now),
            job_id=new.job_id,
            goal_id=new.goal_id,
            digest=digest,
            package=new.package,
            devices=new.devices,
            stages=new.stages,
            criteria=new.criteria,
            state=RolloutState.RUNNING,
            stage=0,
            since_unix_ms=now_ms,
            reason="started",
            created_unix_ms=now_ms,
            started_by=current_caller().name,
        )

    def newest(self) -> list[RolloutProgress]:
        """Return up to `MOST_LISTED` roll-outs, the newest first.

        The devices of those that are not under way may be those of a few seconds ago.
        """
        self.refresh()
        self._check_readable()
        return self._devices.listed(islice(reversed(self._rollouts.values()), MOST_LISTED))

    def get(self, rollout_id: str) -> RolloutProgress:
        """Return a roll-out.

        Raises:
            MistifyError: NOT_FOUND, there is no such roll-out.
        """
        known = self._latest()
        self._check_readable()
        return self._devices.progress(_of(known, rollout_id))

    def pause(self, rollout_id: str) -> RolloutProgress:
        """Admit no further devices and stages; limits still apply.

        Raises:
            MistifyError: NOT_FOUND, there is no such roll-out; CONFLICT, it has ended; UNAVAILABLE, the store
                cannot be written.
        """
        return self._with_state(rollout_id, RolloutState.PAUSED, f"paused by {current_caller().name}")

    def resume(self, rollout_id: str) -> RolloutProgress:
        """Undo `pause`; the minimum time of the stage starts again.

        Raises:
            MistifyError: NOT_FOUND, there is no such roll-out; CONFLICT, it has ended; UNAVAILABLE, the store
                cannot be written.
        """
        return self._with_state(rollout_id, RolloutState.RUNNING, f"resumed by {current_caller().name}")

    def roll_back(self, rollout_id: str) -> RolloutProgress:
        """End a roll-out, even one that is done; its devices return to their previous package.

        One that was rolled back does not change, so that the call can be repeated.

        Raises:
            MistifyError: NOT_FOUND, there is no such roll-out; CONFLICT, it has stopped by itself, or a later
                roll-out has replaced its package; UNAVAILABLE, the store cannot be written.
        """
        return self._changed(lambda known: self._rolled_back(_of(known, rollout_id), known))

    def _rolled_back(self, rollout: Rollout, known: Mapping[str, Rollout]) -> RolloutProgress:
        if rollout.state is RolloutState.ROLLED_BACK:
            return self._devices.progress(rollout)
        if not rollout.state.in_force:
            raise MistifyError(
                ErrorCode.CONFLICT,
                f"the roll-out {rollout.id} is {rollout.state} already, and its devices return to their "
                "previous package with their next reports",
            )
        later = [each for each in known.values() if each.package == rollout.package]
        for other in later[later.index(rollout) + 1 :]:
            if other.state.in_force:
                raise MistifyError(
                    ErrorCode.CONFLICT,
                    f"the later roll-out {other.id} replaces the package of {rollout.id}; roll that one back "
                    f"first: mistify rollout back {other.id}",
                )
        ended = self._at(rollout, RolloutState.ROLLED_BACK, f"by {current_caller().name}")
        outcome = outcome_of(rollout, self._devices.members(rollout))
        return self._saved(replace(ended, outcome=outcome), known)

    def instruction(self, status: DeviceStatus) -> Instruction:
        """Return which package a device should run, in response to its status."""
        if status.rollouts is None:
            return Instruction()
        installation = status.rollouts.installation
        if installation is not None and installation.phase.begun:
            followed = self._rollouts.get(installation.rollout)
            if followed is not None and not followed.state.in_force:
                return Instruction(withdrawn=followed.id)
        for rollout in self._in_force.get(status.rollouts.package, ()):
            if is_addressed(rollout, status) and self._devices.includes(rollout, status):
                return Instruction(wanted=rollout.wanted)
        return Instruction()

    def advance(self) -> None:
        """Start the next stages of roll-outs, and stop those beyond their limits.

        Raises:
            MistifyError: UNAVAILABLE, the store cannot be written; the next call retries.
        """
        with self._changing:
            known = self._latest()
            for rollout in known.values():
                if not rollout.state.under_way:
                    continue
                following = judged(rollout, self._devices.members(rollout), self._now_ms())
                if following != rollout:
                    with suppress(RolloutsChangedError):  # by another server; the next call judges it again
                        self._saved(following, known)
                        known = {**known, rollout.id: following}

    def _keep(self, rollouts: dict[str, Rollout]) -> None:
        """Replace all roll-outs: none is changed while another thread goes through them."""
        in_force: defaultdict[str, list[Rollout]] = defaultdict(list)
        for rollout in reversed(rollouts.values()):
            if rollout.state.in_force:
                in_force[rollout.package].append(rollout)
            if rollout.state.under_way and rollout != self._rollouts.get(rollout.id):
                self._devices.members(rollout)  # finds the first devices before any asks
        self._rollouts, self._in_force = rollouts, dict(in_force)

    def _with_state(self, rollout_id: str, state: RolloutState, reason: str) -> RolloutProgress:
        def change(known: Mapping[str, Rollout]) -> RolloutProgress:
            rollout = _of(known, rollout_id)
            if not rollout.state.under_way:
                message = f"the roll-out {rollout.id} is {rollout.state}; start another one"
                raise MistifyError(ErrorCode.CONFLICT, message)
            if rollout.state is state:
                return self._devices.progress(rollout)
            return self._saved(self._at(rollout, state, reason), known)

        return self._changed(change)

    def _at(self, rollout: Rollout, state: RolloutState, reason: str) -> Rollout:
        return replace(rollout, state=state, reason=reason, since_unix_ms=self._now_ms())

    def _saved(self, rollout: Rollout, known: Mapping[str, Rollout]) -> RolloutProgress:
        self._store.put(rollout, known)
        self._latest()
        _log.info(
            "the roll-out %s is %s, stage %s: %s",
            rollout.id,
            rollout.state.value,
            format_share(rollout.stages[rollout.stage]),
            rollout.reason,
            extra={"job": rollout.job_id, "goal": rollout.goal_id},
        )
        return self._devices.progress(rollout)

    def _digest(self, job_id: str, goal_id: str) -> str:
        """Return the SHA-256 of the manifest of a goal's package."""
        goal = self._jobs.goal(job_id, goal_id)
        for file in goal.files:
            if file.name == MANIFEST:
                return file.sha256
        message = f'the goal "{goal_id}" has no package; its state is {goal.state.value}'
        raise MistifyError(ErrorCode.NOT_FOUND, message)

    def _now_ms(self) -> int:
        return int(self._now().timestamp() * 1000)


def _of(rollouts: Mapping[str, Rollout], rollout_id: str) -> Rollout:
    rollout = rollouts.get(rollout_id)
    if rollout is None:
        message = f'there is no roll-out "{rollout_id}"; see the list of roll-outs'
        raise MistifyError(ErrorCode.NOT_FOUND, message)
    return rollout
