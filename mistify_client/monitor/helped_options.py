"""Options with helpers, as apps predict them (CrowdHMTware III-B)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from mistify.package.option_kinds import helped_id
from mistify_client.lending.gains import is_much_faster
from mistify_client.lending.reports import LendingReport
from mistify_client.monitor.policies.base import Situation
from mistify_client.monitor.sensing.bottleneck import Timing
from mistify_client.runtime.options import Option

#: Memory of an option with helpers, relative to that alone: the blocks between two cuts are in memory, too.
HELPED_MEMORY: Final = 2


def newest(reports: Iterable[LendingReport], options: Sequence[str]) -> LendingReport | None:
    """Return the last report of an app that runs one of some options; None without any.

    Args:
        options: Ids of the options of the current version.
    """
    known = [report for report in reports if report.option in options]
    return max(known, key=lambda report: report.seconds, default=None)


def with_helpers(situation: Situation, report: LendingReport | None, *, running: bool) -> Situation:
    """Return a situation with the options that helpers make much faster, next to the same ones without.

    The chosen option remains one with helpers while these are faster at all. It has the network and its
    segments in memory. The energy is that of this device alone, because that of sending is unknown.

    Args:
        situation: The situation without helpers.
        report: The predictions of an app; None without any.
        running: Whether helpers may be asked now.
    """
    times = {} if report is None else report.helped_ms
    helped_ms = {}
    for option in situation.options:
        if (ms := times.get(option.id)) is not None:
            local_ms = situation.predicted(option).ms
            is_running = running and option.id == situation.option
            if is_much_faster(ms, local_ms) or (is_running and ms < local_ms):
                helped_ms[option.id] = ms
    energies = situation.conditions.energies
    same = {helped_id(each): energies[each] for each in helped_ms if each in energies}
    chosen = situation.option
    return replace(
        situation,
        option=helped_id(chosen) if running and chosen in helped_ms else chosen,
        options=(*situation.options, *(_helped(each) for each in situation.options if each.id in helped_ms)),
        conditions=replace(
            situation.conditions,
            energies={**energies, **same},
            helped_ms={helped_id(each): ms for each, ms in helped_ms.items()},
        ),
    )


def helped_timing(inferences: npt.NDArray[Any], situation: Situation) -> Timing | None:
    """Return the median times of the inferences with helpers; None if there is none.

    Args:
        inferences: An array of shape (n,) and dtype `runtime.statistics.INFERENCE`.
        situation: The situation in which an option with helpers runs.
    """
    helped = inferences[inferences["helped"] == 1]
    if not len(helped):
        return None
    medians = (float(np.median(helped[name])) for name in ("latency_ms", "computing_ms", "before_ms"))
    return Timing(situation.predicted(situation.chosen).ms, *medians)


def _helped(option: Option) -> Option:
    memory = option.costs.memory_bytes
    costs = replace(option.costs, memory_bytes=None if memory is None else HELPED_MEMORY * memory)
    return replace(option, id=helped_id(option.id), costs=costs, helped=True)
