"""Application of changes to the rows of a job."""

from sqlalchemy.orm import Session

from mistify.jobs.job import GoalState
from mistify_server.store.changes import (
    Advanced,
    BranchesSaved,
    Change,
    CheckpointSaved,
    GoalChanged,
    GoalsFailed,
    GraphSaved,
    JobChanged,
    LayersSaved,
    PreparationSaved,
    ReferenceSaved,
    RootSaved,
)
from mistify_server.store.sql.details import graph_row, layers_row
from mistify_server.store.sql.reading import job_row
from mistify_server.store.sql.rows import (
    GoalEvent,
    change_goal,
    checkpoint_row,
    edge_row,
    fail_goals,
)
from mistify_server.store.sql.schema import (
    BatchRow,
    BranchesRow,
    GoalRow,
)


def apply_change(session: Session, job_id: str, change: Change) -> list[GoalEvent]:
    """Apply a change, and return its events."""
    match change:
        case RootSaved(batch, root):
            session.get_one(BatchRow, (job_id, batch)).root = root.model_dump(mode="json")
        case PreparationSaved(batch, name, prepared):
            of_batch = session.get_one(BatchRow, (job_id, batch))
            made = prepared.model_dump(mode="json")
            of_batch.preparations = {**of_batch.preparations, name: made}
        case ReferenceSaved(batch, reference):
            session.get_one(BatchRow, (job_id, batch)).reference = reference.model_dump(mode="json")
        case CheckpointSaved(batch, node, result, record):
            session.merge(checkpoint_row(job_id, batch, node, result))
            session.flush()
            session.add_all([edge_row(job_id, batch, node, record)] if record else [])
        case BranchesSaved(goal_id, branched):
            made = branched.model_dump(mode="json")
            session.merge(BranchesRow(job_id=job_id, goal_id=goal_id, result=made))
        case LayersSaved(goal_id, layers):
            session.merge(layers_row(job_id, goal_id, layers))
        case GraphSaved(goal_id, graph):
            session.merge(graph_row(job_id, goal_id, graph))
        case GoalChanged(goal):
            row = session.get_one(GoalRow, (job_id, goal.id))
            unchanged = row.state == goal.state.value
            change_goal(session, row, goal)
            return [] if unchanged else [(goal.id, goal.state)]
        case GoalsFailed(goal_ids, reason):
            fail_goals(session, job_id, goal_ids, reason)
            return [(goal_id, GoalState.FAILED) for goal_id in goal_ids]
        case JobChanged(state, reason):
            job = job_row(session, job_id)
            unchanged = job.state == state.value
            job.state, job.reason = state.value, reason
            return [] if unchanged else [(None, state)]
        case Advanced(goal_id, update):
            return [(goal_id, update)]
    return []
