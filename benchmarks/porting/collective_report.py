"""Tables and a plot of collective adaptation and adaptation case by case."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure
from rich.table import Table

from benchmarks.porting.collective_comparison import Comparison


def tables(name: str, comparison: Comparison) -> tuple[Table, Table]:
    """Return the tables of goals ported together, and of goals ported case by case."""
    goals = Table(title=f"{name}: collective adaptation", title_justify="left")
    tools = list(comparison.cases)
    for column in ("goals", "mean accuracy", "seconds", "steps"):
        goals.add_column(column, justify="right")
    for tool in tools:
        goals.add_column(f"times faster than {tool}", justify="right")
        goals.add_column("times fewer steps", justify="right")
    for count, ported in comparison.collective.items():
        ratios = (
            f"{ratio(tool, count):.1f}"
            for tool in tools
            for ratio in (comparison.times_faster, comparison.times_fewer_steps)
        )
        accuracy = ported.accuracy(ported.accuracies)
        goals.add_row(str(count), f"{accuracy:.1f} %", f"{ported.waited:,.0f}", f"{ported.steps:,}", *ratios)
    cases = Table(title=f"{name}: goals case by case", title_justify="left")
    for column in ("tool", "steps per goal", "mean accuracy", "seconds per goal"):
        cases.add_column(column, justify="left" if column == "tool" else "right")
    for tool, curve in comparison.cases.items():
        for steps, ported in curve.items():
            accuracy, seconds = ported.accuracy(ported.accuracies), ported.waited / len(ported.accuracies)
            cases.add_row(tool, f"{steps:,}", f"{accuracy:.1f} %", f"{seconds:.1f}")
    return goals, cases


def draw(comparisons: Mapping[str, Comparison], file: Path) -> None:
    """Plot each network's accuracies by share, and its seconds by the number of goals."""
    figure = Figure(figsize=(10, 4 * len(comparisons)), layout="constrained")
    rows = figure.subplots(len(comparisons), 2, squeeze=False)
    for (by_share, by_count), (name, comparison) in zip(rows, comparisons.items(), strict=True):
        counts = list(comparison.collective)
        together = comparison.collective[max(counts)]
        case_by_case = {
            f"{tool}, {steps:,} steps each": ported
            for tool, curve in comparison.cases.items()
            for steps, ported in curve.items()
        }
        for label, ported in {f"{max(counts)} goals together": together, **case_by_case}.items():
            by_share.semilogx(*zip(*sorted(ported.accuracies.items()), strict=True), "o-", ms=3, label=label)
        by_count.loglog(counts, [comparison.collective[n].waited for n in counts], "o-", label="together")
        for label, ported in case_by_case.items():
            each = ported.waited / len(ported.accuracies)
            by_count.loglog(counts, [each * n for n in counts], "--", label=label)
        by_share.set(title=name, xlabel="share of the source's multiply-adds", ylabel="accuracy, %")
        by_count.set(title=name, xlabel="goals", ylabel="CPU seconds")
        for axes in (by_share, by_count):
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
    figure.savefig(file, dpi=120)
