"""Removal of jobs: of none that something else still needs, but of all their rows."""

from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from mistify.errors import ErrorCode, MistifyError
from mistify.rollouts import RolloutState
from mistify_server.store.sql.schema import (
    AdditionRow,
    BatchRow,
    BranchesRow,
    CheckpointRow,
    CurvePointRow,
    EdgeRow,
    EventRow,
    FileRow,
    GoalRow,
    GraphRow,
    GroupRow,
    JobRow,
    LayersRow,
    RolloutRow,
)
from mistify_server.store.sql.versions import state_of

#: Tables with rows of a job, referring tables before the tables they refer to.
_OF_JOB: Final = (
    EventRow,
    FileRow,
    BranchesRow,
    LayersRow,
    GraphRow,
    CurvePointRow,
    GoalRow,
    EdgeRow,
    CheckpointRow,
    BatchRow,
    AdditionRow,
)


def check_removable(session: Session, job: JobRow) -> None:
    """Check that a job can be removed.

    Raises:
        MistifyError: CONFLICT, the job is unfinished, a group tunes its packages, or one of them is being
            rolled out; STORE_VERSION, its state is unknown to this version.
    """
    if not state_of(job).ended:
        raise MistifyError(
            ErrorCode.CONFLICT, f"the job {job.id} is {job.state}; wait until it finishes or cancel it"
        )
    group = session.scalar(select(GroupRow.name).filter_by(job_id=job.id))
    if group is not None:
        raise MistifyError(
            ErrorCode.CONFLICT,
            f'the group "{group}" tunes packages of the job {job.id}; remove the group first',
        )
    ended = [state.value for state in RolloutState if not state.under_way]  # others may be of a newer version
    rollouts = select(RolloutRow.id).filter_by(job_id=job.id).where(RolloutRow.state.not_in(ended))
    rollout = session.scalar(rollouts)
    if rollout is not None:
        raise MistifyError(
            ErrorCode.CONFLICT,
            f"the roll-out {rollout} installs a package of the job {job.id}; wait until it is done, or "
            f"end it: mistify rollout back {rollout}",
        )


def remove_rows(session: Session, job: JobRow) -> None:
    """Remove all rows of a job."""
    for row in _OF_JOB:
        session.execute(delete(row).filter_by(job_id=job.id))
    session.delete(job)
