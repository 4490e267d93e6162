"""The trade-offs of a job as data for Plotly in the browser."""

from collections.abc import Iterator
from html import escape
from typing import Any

from mistify.jobs.job import Job
from mistify.jobs.report import report
from mistify.jobs.tradeoffs import TradeOff, trade_offs


def plots_of(job: Job) -> list[dict[str, Any]]:
    """Return a plot for each trade-off of a job, with the data for Plotly and the limits."""
    return [
        {
            "title": trade_off.title,
            "batch": trade_off.batch_name,
            "score": ", ".join(filter(None, (trade_off.output, trade_off.metric.value))),
            "output": trade_off.output,
            "share": trade_off.metric.is_share,
            "limits": trade_off.limits,
            "traces": list(_traces(trade_off)),
        }
        for trade_off in trade_offs(report(job))
    ]


def _traces(trade_off: TradeOff) -> Iterator[dict[str, Any]]:
    best, score = trade_off.front, "%{y:.1%}" if trade_off.metric.is_share else "%{y:.4g}"
    if len(best) > 1:
        yield {
            "name": "best",
            "mode": "lines",
            "line": {"shape": "hv", "dash": "dot"},
            "x": [point.cost for point in best],
            "y": [point.score for point in best],
            "hoverinfo": "skip",
        }
    for name, symbol, met in (("met", "circle", True), ("not met", "x", False)):
        shown = [point for point in trade_off.points if point.met is met]
        if shown:
            yield {
                "name": name,
                "mode": "markers",
                "marker": {"symbol": symbol, "size": 9},
                "x": [point.cost for point in shown],
                "y": [point.score for point in shown],
                "text": [escape(point.goal, quote=False) for point in shown],  # Plotly interprets some markup
                "customdata": [point.goal for point in shown],
                "hovertemplate": f"%{{text}}<br>%{{x:.4s}}, {score}<extra></extra>",
            }
    if trade_off.source is not None:
        marker = {"symbol": "star", "size": 12}
        x, y = trade_off.source
        yield {"name": "source", "mode": "markers", "marker": marker, "x": [x], "y": [y]}
