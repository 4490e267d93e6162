"""The pages of a filled store."""

from typing import Final

from tests.support.many_goals import job_of

_GOALS: Final = [goal.id for goal in job_of(7).goals]

#: Name of a page -> its path on a server of a filled store.
PATHS: Final = {
    "jobs": "",
    "found jobs": "?search=tag:nightly",
    "removed jobs": "?removed=true",
    "submit": "submit",
    "fleet": "fleet",
    "tokens": "tokens",
    "one": "jobs/one",
    "twenty": "jobs/twenty",
    "thousand": "jobs/thousand",
    "two models": "jobs/two-models",
    "failed": "jobs/failed",
    "running": "jobs/running",
    "removed": "jobs/gone",
    "goal": f"jobs/twenty/goals/{_GOALS[0]}",
    "unmet goal": f"jobs/twenty/goals/{_GOALS[6]}",
    "failed goal": f"jobs/failed/goals/{_GOALS[1]}",
    "running goal": f"jobs/running/goals/{_GOALS[2]}",
    "add": "jobs/twenty/add",
    "add to two models": "jobs/two-models/add",
    "compare": "compare?before=twenty&after=failed",
    "report": "v1/jobs/twenty/report.html",
    "report of one": "v1/jobs/one/report.html",
    "report with a failed goal": "v1/jobs/failed/report.html",
    "report of two models": "v1/jobs/two-models/report.html",
    "report of a thousand": "v1/jobs/thousand/report.html",
    "no such page": "jobs/none",
}
