"""The goals of `configs/digits.json`, as ported by `make demo`, and the costs of each package.

`python -m benchmarks.porting.default_config [--quick] [--json FILE]`

The config is ported by the command line in a separate process, as by `make demo`. Figures are taken from its
report: accuracies in LiteRT on the test data, latencies measured on this machine with one thread. `--quick`
trains for few steps.
"""

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.harness.records import REPOSITORY
from benchmarks.harness.run import Figures, Target, run

BENCHMARK: Final = "porting.default_config"
CONFIG: Final = REPOSITORY / "configs" / "digits.json"

#: Prefixes of the source's figures before and after tuning, like the goals' ids.
SOURCE, TUNED = "source", "tuned"

TARGETS: Final[dict[str, Target]] = {
    "goals_missed": {"what": "goals of `configs/digits.json` that are missed", "max": 0},
    "most_lost": {
        "what": "most that a goal loses against the tuned source, points", "max": 1.0, "full_run_only": True
    },
}  # fmt: skip

_QUICK_SETTINGS: Final = {"source_steps": 20, "adapt_steps": 20, "tune_steps": 20}


def measure(options: Namespace) -> Figures:
    """Port the config and return the figures of its report."""
    with TemporaryDirectory() as directory:
        config = Path(directory) / "goals.json"
        goals = json.loads(CONFIG.read_text())
        for goal in goals if options.quick else ():
            goal["algorithm"]["config"] = _QUICK_SETTINGS
        config.write_text(json.dumps(goals))
        out = Path(directory) / "out"
        command = [
            str(word) for word in (Path(sys.executable).parent / "mistify", "port", config, "--out", out)
        ]
        subprocess.run(command, check=False)  # missed goals are a figure, not an error
        figures = figures_of(json.loads((out / "report.json").read_text()))
    return {name: of for name, of in figures.items() if not options.quick or name != "most_lost"}


def figures_of(report: Mapping[str, Any]) -> dict[str, float]:
    """Return costs and accuracies of the source and of each goal, in bytes, microseconds and percent."""
    source, goals = report["source"], report["goals"]
    figures = {
        "seconds": report["seconds"],
        "goals_missed": sum(not goal["met"] for goal in goals),
        "most_lost": max(100 * (source["tuned_accuracy"] - goal["achieved"]["accuracy"]) for goal in goals),
        f"{TUNED}_accuracy": 100 * source["tuned_accuracy"],
        **_costs(SOURCE, source, source["measured_latency_ms"]["1"]),
    }
    for goal in goals:
        figures |= _costs(goal["id"], goal["achieved"], goal["achieved"]["measured_latency_ms"])
    return figures


def goals_of(figures: Iterable[str]) -> list[str]:
    """Return the ids of the goals, from the names of figures."""
    suffix = "_multiply_adds"
    return [
        name.removesuffix(suffix) for name in figures if name.endswith(suffix) and name != SOURCE + suffix
    ]


def _costs(name: str, figures: Mapping[str, float], latency_ms: float) -> dict[str, float]:
    return {
        f"{name}_multiply_adds": figures["flops"],
        f"{name}_parameters": figures["params"],
        f"{name}_memory_bytes": figures["memory_bytes"],
        f"{name}_latency_us": 1e3 * latency_ms,
        f"{name}_accuracy": 100 * figures["accuracy"],
    }


if __name__ == "__main__":
    sys.exit(run(BENCHMARK, TARGETS, measure, sys.argv[1:]))
