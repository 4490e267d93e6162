"""Decisions of the monitor while load, memory and battery change: the policy `contextual` against others.

`python -m benchmarks.device.decisions [--quick] [--seeds N ...] [--json FILE]`

- `decision_us`: processor time of one decision of `contextual` over 32 options, the median; beside it that of
  `predictive`.

Traces of an hour have a decision every second, while the load multiplies latencies by 1 to 4, the memory for
an option falls to a fifth and a tenth, and the battery runs from full to nearly empty. Eight options have an
eighth of the costs of the largest one up to all of them. The limits are the same for all sides: a latency,
and 80 % of the memory that is available. The sides:

- `contextual`: the policy with its default importance, which shifts to energy as the battery runs down;
- `accurate`: the same policy if only accuracy counts within the limits;
- `predictive`: the default policy, which does not know how much memory is available; with the target for the
  memory (none, a fifth or a tenth) that is best for these traces in hindsight;
- `fixed`: the one option that is best in hindsight;
- `oracle`: in each second the best option within the limits, without a delay.

There are two objectives: the accuracy, and the score of equation 3 with the default importance. Both count
as 0 outside the limits, and the sides `predictive`, `fixed` and `oracle` are at their best for each. Means
over the traces:

- `within`: the share of the time within both limits;
- `accuracy`, `score`: the objectives;
- `mj`: the energy of an inference;
- `switches`: changes of the option in an hour.

`accuracy_gained` and `score_gained` are shares of what the oracle gains over the best fixed option: by
`accurate` and by `contextual`.

The figures are replays of traces with the code that runs in the monitor, so they are the same on every
machine, except for the times of decisions.
"""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import pairwise
from operator import attrgetter
from statistics import fmean, median
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.device.changing_conditions import LESS_MEMORY, LIMIT_MS, options_of_size, trace
from benchmarks.harness.run import Figures, Target, add_seeds_option, run, seeds_of
from mistify_client.monitor.policies.base import Policy, Situation, make_policy
from mistify_client.monitor.policies.criteria import ContextualParams, Criterion
from mistify_client.monitor.policies.scoring import (
    Limits,
    Scores,
    amounts_of,
    battery_preference,
    weights_for_battery,
)
from mistify_client.monitor.state.targets import Targets
from mistify_client.monitor.traces.lines import Line
from mistify_client.monitor.traces.replay import replayed

TARGETS: Final[dict[str, Target]] = {
    "decision_us": {"what": "a decision over 32 options, us of processor time", "max": 1000},
    "contextual_within": {"what": "contextual: share of the time within the limits", "min": 0.97},
    "accurate_within": {"what": "accurate: share of the time within the limits", "min": 0.97},
    "accuracy_gained": {
        "what": "accurate: share of the oracle's gain in accuracy over one option",
        "min": 0.7,
    },
    "score_gained": {"what": "contextual: share of the oracle's gain in score over one option", "min": 0.7},
}

_SECONDS: Final = 3600
_QUICK_SECONDS: Final = 600
_OFFERED: Final = 8
_MOST_OFFERED: Final = 32
_TIMED: Final = 300


@dataclass(frozen=True)
class Outcome:
    """The results of a side: in a second, on a trace, or on all of them."""

    within: float
    accuracy: float
    score: float
    mj: float
    switches: float = 0.0


def main(argv: Sequence[str] = ()) -> int:
    """Run the benchmark and return the exit code."""
    return run("device.decisions", TARGETS, measure, argv, add_seeds_option)


def measure(options: Namespace) -> Figures:
    """Return all figures; print a table of all sides."""
    offered = options_of_size(_OFFERED)
    seconds = _QUICK_SECONDS if options.quick else _SECONDS
    days = [Day.of([*trace(offered, seconds, seed)]) for seed in seeds_of(options)]

    def side(policy: Mapping[str, object], memory: float | None = None) -> Outcome:
        return _mean([day.replayed(lambda: make_policy(policy), memory) for day in days])

    only_accuracy = {"name": "contextual", "importance": {"accuracy": 9}, "battery": "ignore"}
    sides = {"contextual": side({"name": "contextual"}), "accurate": side(only_accuracy)}
    predictive = [side({}, memory) for memory in (None, *LESS_MEMORY)]
    fixed = [_mean([day.fixed(option.id) for day in days]) for option in offered]
    for objective in ("accuracy", "score"):
        sides[f"predictive_by_{objective}"] = max(predictive, key=attrgetter(objective))
        sides[f"fixed_by_{objective}"] = max(fixed, key=attrgetter(objective))
        sides[f"oracle_by_{objective}"] = _mean([day.oracle(objective) for day in days])
    Console().print(_table(sides))
    return {
        "decision_us": _decision_us({"name": "contextual"}),
        "predictive_decision_us": _decision_us({}),
        **{f"{name}_{figure}": value for name, one in sides.items() for figure, value in asdict(one).items()},
        "accuracy_gained": _gained(sides, "accurate", "accuracy"),
        "score_gained": _gained(sides, "contextual", "score"),
        "predictive_accuracy_gained": _gained(sides, "predictive_by_accuracy", "accuracy"),
        "predictive_score_gained": _gained(sides, "predictive_by_score", "score"),
    }


@dataclass(frozen=True)
class Day:
    """A trace, and the results of each option in each of its seconds."""

    lines: Sequence[Line]
    results: Sequence[Mapping[str, Outcome]]

    @classmethod
    def of(cls, lines: Sequence[Line]) -> "Day":
        """Return a trace with its results; nothing ran before its first moment."""
        steps = replayed(lines, lambda: make_policy({}), Targets())
        return cls(lines, [_judged(step.situation) for step in steps][1:])

    def replayed(self, make: Callable[[], Policy], memory: float | None) -> Outcome:
        """Return the means of a policy, with a target for the memory if it has one."""
        steps = replayed(self.lines, make, Targets(latency=LIMIT_MS, memory=memory))
        return self._summed([step.situation.option for step in steps][1:])

    def fixed(self, option: str) -> Outcome:
        """Return the means of one option."""
        return self._summed([option] * len(self.results))

    def oracle(self, objective: str) -> Outcome:
        """Return the means of the best option in each second."""

        def best(results: Mapping[str, Outcome]) -> str:
            return max(results, key=lambda option: getattr(results[option], objective))

        return self._summed([best(results) for results in self.results])

    def _summed(self, ran: Sequence[str]) -> Outcome:
        """Return the means of the options that ran in each second, and the switches between them."""
        means = _mean([results[option] for results, option in zip(self.results, ran, strict=True)])
        switches = sum(one != other for one, other in pairwise(ran))
        return replace(means, switches=3600 * switches / len(ran))


def _gained(sides: Mapping[str, Outcome], name: str, objective: str) -> float:
    """Return the share of the oracle's gain over the best fixed option that a side reaches."""
    reached, fixed, oracle = (
        getattr(sides[one], objective) for one in (name, f"fixed_by_{objective}", f"oracle_by_{objective}")
    )
    return float((reached - fixed) / (oracle - fixed))


def _judged(situation: Situation) -> dict[str, Outcome]:
    """Return the results of each option in a second, by limits that are the same for all sides."""
    amounts = amounts_of(situation)
    limits = Limits(replace(situation, targets=Targets(latency=LIMIT_MS)), amounts)
    charge = situation.reading.battery or 0.0
    scores = Scores.of(amounts, weights_for_battery(ContextualParams().weights, battery_preference(charge)))
    columns = zip(
        limits.excess() <= 0,
        amounts[Criterion.ACCURACY],
        scores.totals,
        amounts[Criterion.ENERGY],
        strict=True,
    )
    return {
        option.id: Outcome(float(kept), float(kept * accuracy), float(kept * score), float(mj))
        for option, (kept, accuracy, score, mj) in zip(situation.options, columns, strict=True)
    }


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(*(fmean(values) for values in zip(*map(astuple, outcomes), strict=True)))


def _decision_us(settings: Mapping[str, object]) -> float:
    """Return the processor time of a decision: the median over a trace."""
    policy, seconds = make_policy(settings), []
    lines = trace(options_of_size(_MOST_OFFERED), _TIMED, seed=0)
    for step in replayed(lines, lambda: make_policy({}), Targets(latency=LIMIT_MS)):
        before = time.thread_time()
        policy.decide(step.situation)
        seconds.append(time.thread_time() - before)
    return 1e6 * median(seconds)


def _table(sides: Mapping[str, Outcome]) -> Table:
    table = Table("side", title="Replays of changing conditions", title_justify="left")
    for column in ("within the limits", "accuracy", "score", "energy, mJ", "switches an hour"):
        table.add_column(column, justify="right")
    for name, one in sides.items():
        figures = f"{one.within:.1%}", f"{one.accuracy:.3f}", f"{one.score:.3f}", f"{one.mj:.1f}"
        table.add_row(name.replace("_", " "), *figures, f"{one.switches:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
