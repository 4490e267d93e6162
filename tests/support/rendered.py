"""Pages of jobs as the server renders them, but without a running server."""

from collections.abc import Sequence
from typing import Any

from mistify.jobs.channels import kept_channels
from mistify.jobs.details import GoalDetails
from mistify.jobs.job import Goal, GoalState, Job, JobEvent
from mistify.jobs.part import JobPart
from mistify.jobs.report import report
from mistify_server.jobs.served import serves_tasks
from mistify_server.store.plans import BatchInputs
from mistify_server.web.node_data import figures_of
from mistify_server.web.pages.curves import curves_of
from mistify_server.web.pages.goal_costs import costs_of
from mistify_server.web.pages.goal_tree import draw_tree
from mistify_server.web.pages.job_table import job_table
from mistify_server.web.pages.missed_goals import missed_goals
from mistify_server.web.pages.network_drawing import draw_network
from mistify_server.web.pages.plots import plots_of
from mistify_server.web.pages.progress import job_progress, progress_of
from mistify_server.web.pages.task_tables import task_table
from mistify_server.web.rendering import render


def job_page(
    job: Job, after: int = 0, events: Sequence[JobEvent] = (), inputs: Sequence[BatchInputs] = ()
) -> str:
    """Return the page of a job with its events up to `after`, of which `events` are the latest."""
    return render(
        "job.html",
        path=f"/jobs/{job.id}",
        needs_token=False,
        in_session=False,
        caller=None,
        part=JobPart(job, len(job.goals), sum(goal.state is GoalState.MET for goal in job.goals)),
        job=job,
        inputs=inputs,
        done=job_progress(job, len(job.goals), events),
        missed=missed_goals(job),
        table=job_table(job),
        plots=plots_of(job),
        tree=draw_tree(job.goals),
        tasks=task_table(job),
        serves_tasks=serves_tasks(job),
        last_event=after,
        progress=progress_of(events),
    )


def goal_page(job: Job, goal: Goal, details: GoalDetails) -> str:
    """Return the page of a goal."""
    reported: dict[str, Any] = report(job)
    return render(
        "goal.html",
        path=f"/jobs/{job.id}/goals/{goal.id}",
        needs_token=False,
        in_session=False,
        caller=None,
        job=job,
        goal=goal,
        data=next(each for each in reported["goals"] if each["id"] == goal.id),
        source=job.source_of(goal),
        costs=costs_of(goal, job.source_of(goal), job.formats),
        formats=job.formats,
        details=details,
        curves=curves_of(goal, details, ()),
        layers=None,
        network=draw_network(details.graph, kept_channels(details)) if details.graph else None,
        node_figures=figures_of(details),
        wheel="",
    )
