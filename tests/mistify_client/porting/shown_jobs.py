"""Tables of jobs, and a job with metrics of plug-ins."""

import io
from dataclasses import replace

from rich.console import Console

from mistify.config.package.quantization import QuantizationConfig
from mistify.costs.formats import AxisFormat
from mistify.costs.quantization import Quantization
from mistify.parsing.quantities import measured_in
from mistify_client.porting.table import table


def lines_of_table(job, width: int) -> list[str]:
    """Return the lines of a job's table for a terminal width."""
    console = Console(file=io.StringIO(), width=width)
    console.print(table(job, console.width))
    return console.file.getvalue().splitlines()


def plugged_in(job):
    """Return a job with a goal `half` that limits energy, and speed, where higher is better."""
    formats = (
        AxisFormat("energy_mj", "energy", measured_in({"uJ": 1e-3, "mJ": 1})),
        AxisFormat("1/frames_per_s", "speed", measured_in({"fps": 1})),
        AxisFormat("carbon_g", "carbon", measured_in({"g": 1})),
    )
    half, tenth = job.goals
    costs = {"energy_mj": 2.0, "energy_mj@int8": 0.5, "1/frames_per_s@host": 0.1, "carbon_g": 7.0}
    costs |= {"1/frames_per_s@pi": 0.05}
    half = replace(
        half,
        spec=replace(
            half.spec,
            quantization=QuantizationConfig(precision=Quantization.INT8),
            budget={"energy_mj@int8": 0.4, "1/frames_per_s@pi": 0.04},
        ),
        achieved={**costs, **half.achieved, "energy_mj@int8": 0.3, "1/frames_per_s@pi": 0.02},
    )
    return replace(job, goals=(half, tenth), sources=(replace(job.sources[0], costs=costs, formats=formats),))
