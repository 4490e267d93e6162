"""The report of a job: a self-contained file that needs no server."""

import base64
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import cache
from hashlib import sha256
from typing import Final

from mistify.jobs.job import Job
from mistify.times import utc_now
from mistify_server.web.assets import PLOTLY, asset_of
from mistify_server.web.pages.goal_table import goal_table
from mistify_server.web.pages.goal_tree import draw_tree
from mistify_server.web.pages.missed_goals import missed_goals
from mistify_server.web.pages.plots import plots_of
from mistify_server.web.pages.task_tables import task_table
from mistify_server.web.rendering import render

_SCRIPTS: Final = ("plots.js", "report.js")


def report_page(job: Job, now: Callable[[], datetime] = utc_now) -> str:
    """Return a job with all its goals as a self-contained HTML page.

    Without plots, the page omits the plotting library, which is most of its size.
    """
    plots = plots_of(job)
    return render(
        "report.html",
        job=job,
        as_of=f"{now():%Y-%m-%d %H:%M} UTC",
        states=Counter(goal.state.value for goal in job.goals),
        missed=missed_goals(job),
        table=goal_table(job),
        tasks=task_table(job),
        tree=draw_tree(job.goals),
        plots=plots,
        policy=report_policy(),
        style=_static("mistify.css"),
        icon=base64.b64encode(asset_of("icon.svg").content).decode(),
        scripts=[_static(name) for name in _SCRIPTS],
        packed_plotly=base64.b64encode(asset_of(PLOTLY).compressed["gzip"]).decode() if plots else "",
    )


@cache
def report_policy() -> str:
    """Return the content security policy of reports: only their own scripts run, and nothing is loaded."""
    scripts = [asset_of(name).content for name in (*_SCRIPTS, PLOTLY)]
    return (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; img-src data:; "
        "style-src 'unsafe-inline'; "  # Plotly sets inline styles
        "base-uri 'none'; form-action 'none'"
    )


def _hash(script: bytes) -> str:
    return f"'sha256-{base64.b64encode(sha256(script).digest()).decode()}'"


def _static(name: str) -> str:
    return asset_of(name).content.decode()
