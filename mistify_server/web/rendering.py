"""Rendering of the pages' templates."""

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from mistify.costs.budget import LATENCY, MEMORY
from mistify.costs.quantization import Quantization
from mistify.jobs.comparison import compared_quality
from mistify.jobs.formatting import amount, duration, label, quality
from mistify.jobs.job import Goal, JobPriority
from mistify.jobs.report import (
    hardware_of_goal,
    latency_of,
    measured_latency,
    outcome,
    preparations,
    time_shares,
)
from mistify.package.adaptation import ADAPTATION, INSTALL_AT, RESTORE_BELOW
from mistify.parsing.quantities import format_bytes, format_share
from mistify.times import moment
from mistify.uploads import as_written
from mistify.wording import counted
from mistify_server.jobs.removals import final_removal
from mistify_server.web.assets import asset_url

if TYPE_CHECKING:  # servers without HTTP render reports
    from starlette.requests import Request


def render(name: str, **shown: object) -> str:
    """Return a rendered template with these values."""
    return _environment().get_template(name).render(shown)


def render_page(request: "Request", name: str, **shown: object) -> str:
    """Return the page of a template with these values, in answer to a request."""
    state = request.state
    return render(
        name,
        path=request.url.path,
        base_url=str(request.base_url),
        needs_token=state.needs_token,
        in_session=state.in_session,
        caller=state.caller,
        **shown,
    )


@cache
def _environment() -> Environment:
    """Return the template environment, which escapes all values from users."""
    environment = Environment(
        loader=PackageLoader("mistify_server.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "counted": counted,
        "final_removal": final_removal,
        "bytes": lambda size: format_bytes(size, 3),
        "moment": moment,
        "outcome": outcome,
        "precision": lambda precision: "float32" if precision is Quantization.NONE else precision.value,
    }
    environment.globals |= {
        "adapts": _adapts,
        "amount": amount,
        "as_written": as_written,
        "asset_url": asset_url,
        "compared_quality": compared_quality,
        "counted": counted,
        "duration": duration,
        "hardware_of_goal": hardware_of_goal,
        "label": label,
        "latency_of_package": _latency_of_package,
        "latency": lambda figure: amount(LATENCY, figure),
        "memory": lambda figure: amount(MEMORY, figure),
        "priorities": [priority.value for priority in JobPriority],
        "quality": quality,
        "score_title": _score_title,
        "share": lambda part: format_share(part, 2),
        "preparations": preparations,
        "time_shares": time_shares,
    }
    return environment


def _adapts(goal: Goal) -> str:
    """Return when devices adapt a package to their data without labels; empty if they cannot."""
    if not any(file.name == ADAPTATION for file in goal.files):
        return ""
    return f"from a shift of {INSTALL_AT:g}, and restore it below {RESTORE_BELOW:g}"


def _score_title(goals: Iterable[Goal]) -> str:
    """Return the goals' common metric as a column title; `score` if they differ."""
    metrics = {goal.metric.value for goal in goals}
    return metrics.pop() if len(metrics) == 1 else "score"


def _latency_of_package(goal: Goal) -> str:
    """Return the latency of a package, the measured one if it is known; a dash if there is none."""
    measured = measured_latency(goal, goal)
    return amount(LATENCY, latency_of(goal, goal.achieved) if measured is None else measured)
