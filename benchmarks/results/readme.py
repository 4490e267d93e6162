"""The README's table: the goals of the default config, from a record of `porting.default_config`."""

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.harness.records import REPOSITORY, Record
from benchmarks.porting.default_config import BENCHMARK, SOURCE, TUNED, goals_of

README: Final = REPOSITORY / "README.md"

_BEGIN, _END = "<!-- table of python -m benchmarks.results -->\n", "<!-- end of the table -->\n"

_HEAD: Final = (
    "| goal | multiply-adds | parameters | memory | latency, 1 thread | accuracy on the test data |",
    "| --- | ---: | ---: | ---: | ---: | ---: |",
)


def with_table(text: str, records: Sequence[Record]) -> str:
    """Return the README with its table generated from the latest record."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    record = [record for record in records if record.benchmark == BENCHMARK][-1]
    return f"{before}{_BEGIN}{table(record)}\n{_END}{after}"


def table(record: Record) -> str:
    """Return a table of the original source, the tuned source and all goals, and a line on the run."""
    figures = {name: figure for name, figure in record.figures.items() if figure is not None}
    full = figures[f"{SOURCE}_multiply_adds"]
    names = (SOURCE, *goals_of(figures))
    rows = [_row(name, figures, full) for name in names]
    tuned = f"| the source, tuned | | | | | {figures[f'{TUNED}_accuracy']:.1f} % |"
    run = (
        f"The whole run took {figures['seconds']:.0f} seconds on {record.machine['cores']} cores "
        f"({record.machine['processor']}, {(record.date or '')[:10]}, commit {record.commit})."
    )
    return "\n".join([*_HEAD, rows[0], tuned, *rows[1:], "", run])


def _row(name: str, figures: Mapping[str, float], full: float) -> str:
    multiply_adds = figures[f"{name}_multiply_adds"]
    cells = (
        "the source" if name == SOURCE else name,
        f"{multiply_adds / 1e3:.0f}K ({multiply_adds / full:.2f})",
        f"{figures[f'{name}_parameters'] / 1e3:.1f}K",
        f"{figures[f'{name}_memory_bytes'] / 1e3:.0f} kB",
        f"{figures[f'{name}_latency_us']:.1f} us",
        f"{figures[f'{name}_accuracy']:.1f} %",
    )
    return f"| {' | '.join(cells)} |"
