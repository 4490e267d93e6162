"""The goals of a job as a table for spreadsheets."""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any


def goals_csv(report: Mapping[str, Any]) -> str:
    """Return the goals of a report as CSV: a row for each goal, and a column for each figure.

    Limits are in columns such as `budget.FLOP`, achieved figures in columns such as `achieved.flops`, and the
    scores of outputs in columns such as `outputs.boxes.mse`. Cells of unknown figures are empty. Branches are
    left out.

    Args:
        report: The content of `report.json` (`mistify.jobs.report.report`).

    Raises:
        LookupError, TypeError, AttributeError: It is not a report.
    """
    rows = [dict(_cells(goal)) for goal in report["goals"]]
    text = io.StringIO()
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _cells(goal: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the columns of a goal with their cells."""
    for key, value in goal.items():
        if key == "branches":
            continue
        if key == "outputs":
            for score in value:
                yield f"outputs.{score['output']}.{score['metric']}", score["value"]
        elif key == "targets":
            for target in value:
                yield f"targets.{target['output'] or 'all'}.{target['metric']}", target["value"]
        elif key == "task":  # lists of properties or classes
            yield key, "" if value is None else json.dumps(value)
        elif isinstance(value, Mapping):
            yield from ((f"{key}.{inner}", _cell(figure)) for inner, figure in value.items())
        else:
            yield key, _cell(value)


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, list | Mapping) else value
