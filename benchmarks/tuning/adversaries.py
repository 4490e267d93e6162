"""The effect of hostile peers on devices that learn from them (paper 5.1).

`python -m benchmarks.tuning.adversaries --data DIR [--work DIR] [--quick] [--json FILE]`

`benchmarks/tuning/devices.py` describes the devices. In addition to 4 honest peers, a device has 2 hostile
ones, a third of all: they were trained on random labels, or publish an honest model with logits scaled by 8
(the coordinator refuses norms ten times too large). `lost` is the loss of accuracy against the 4 honest peers
alone in points, on average over the devices; `trusted` is the number of the 6 peers that taught.
`honest_gained` is the gain from the 4 honest peers over tuning without peers: a device that trusts nobody
loses nothing, but gains nothing either.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from statistics import mean
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.harness.run import Figures, Target, run
from benchmarks.tuning import devices
from benchmarks.tuning.devices import DEVICES, EQUAL, alone, peers_of, random_labels, taught
from benchmarks.tuning.run import RANDOM, Plan, Published, Run

SCALE: Final = 8.0
HOSTILE: Final = (0, 1)

#: The minimum gain exceeds the maximum loss: a device that trusts nobody among hostile peers misses a target.
TARGETS: Final[dict[str, Target]] = {
    "honest_gained": {"what": "accuracy gain with 4 honest peers, points", "min": 2.5, "full_run_only": True},
    "random_labels_lost": {
        "what": "accuracy loss with 2 additional peers trained on random labels, points",
        "max": 2.0,
        "full_run_only": True,
    },
    "scaled_logits_lost": {
        "what": "accuracy loss with 2 additional peers that scale their logits, points",
        "max": 2.0,
        "full_run_only": True,
    },
}


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("tuning.adversaries", TARGETS, measure, argv, devices.add_options)


def measure(options: Namespace) -> Figures:
    """Measure both kinds of hostile peers."""
    with devices.lab(options, short=options.quick) as lab:
        lab.runs([*alone(EQUAL), *random_labels(EQUAL, HOSTILE)])
        honest = [peers_of(device, 4, EQUAL) for device in range(DEVICES)]
        mistaken = [Published(Plan(EQUAL, RANDOM, device).name, device) for device in HOSTILE]
        scaled = [Published(Plan(EQUAL, "alone", device).name, device, SCALE) for device in HOSTILE]
        settings = {
            "4 peers": honest,
            "random labels": [[*peers, *mistaken] for peers in honest],
            "scaled logits": [[*peers, *scaled] for peers in honest],
        }
        runs_by_kind = {"alone": lab.each(alone(EQUAL))} | {
            kind: lab.each(taught(EQUAL, kind if teachers is honest else f"beside {kind}", teachers))
            for kind, teachers in settings.items()
        }
    Console().print(_table(runs_by_kind))
    return {} if options.quick else figures_of(runs_by_kind)


def figures_of(runs_by_kind: dict[str, list[Run]]) -> Figures:
    """Return the gains and losses in points, and the mean number of peers that taught."""
    means = {kind: 100 * mean(run.accuracy for run in runs) for kind, runs in runs_by_kind.items()}
    figures = {"honest_gained": means["4 peers"] - means["alone"]}
    for kind in ("random labels", "scaled logits"):
        name = kind.replace(" ", "_")
        figures[f"{name}_lost"] = means["4 peers"] - means[kind]
        figures[f"{name}_trusted"] = mean(run.trusted for run in runs_by_kind[kind])
    return figures


def _table(runs_by_kind: dict[str, list[Run]]) -> Table:
    table = Table(title="Accuracy in percent, and number of peers that taught", title_justify="left")
    for column in ("peers", *(f"device {device}" for device in range(DEVICES)), "mean"):
        table.add_column(column, justify="left" if column == "peers" else "right")
    for kind, runs in runs_by_kind.items():
        cells = [f"{100 * run.accuracy:.1f} ({run.trusted})" for run in runs]
        table.add_row(kind, *cells, f"{100 * mean(run.accuracy for run in runs):.1f}")
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
