"""The daemon's status: a file for programs, lines of text for people."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from mistify.package.option_kinds import OptionKind, local_id, option_id
from mistify.parsing.quantities import format_bytes, format_energy, format_time
from mistify.wording import counted
from mistify_client.adapting.storage import AdaptationState
from mistify_client.monitor.foreground import IntervalOutcome
from mistify_client.monitor.replacement.ledger import Replacement
from mistify_client.monitor.rollouts.ledger import Installation
from mistify_client.monitor.state.targets import Targets

_DIGITS = 3

#: Keys that earlier versions of the daemon did not write.
_LATER = (
    "ladder",
    "cutting",
    "adaptation",
    "rollout",
    "lending",
    "computing_share",
    "memory_for_option",
    "measured_ms",
    "measured_mj",
)


def status(outcome: IntervalOutcome) -> dict[str, object]:
    """Return the current decision as plain data; unknown values are None."""
    situation, timing, energy = outcome.situation, outcome.timing, outcome.energy
    conditions = situation.conditions
    return {
        "option": outcome.decision.option,
        "fits": outcome.decision.fits,
        "reason": outcome.decision.reason,
        "criteria": [asdict(criterion) for criterion in outcome.decision.criteria],
        "ratio": situation.ratio,
        "computing_share": conditions.computing_share,
        "memory_for_option": conditions.memory_bytes,
        "measured_ms": None if timing is None else timing.latency_ms,
        "measured_mj": None if energy is None else energy.mj,
        "idle": situation.idle,
        "cause": None if outcome.diagnosis is None else asdict(outcome.diagnosis),
        "targets": targets(situation.targets),
        "options": [
            {
                "id": option.id,
                "kind": option.kind.value,
                "engine": option.engine.model_dump(mode="json"),
                "expected_ms": option.costs.latency_ms,
                "predicted_ms": outcome.predicted_ms[option.id],
                "energy_mj": None if (known := conditions.energies.get(option.id)) is None else known.mj,
                "energy_origin": None if known is None else known.origin.value,
                "memory_bytes": option.costs.memory_bytes,
                "accuracy": option.score.value,
                "metric": option.score.metric.value,
                "blocks": list(option.blocks),
                "helped": option.helped,
            }
            for option in situation.options
        ],
        "pool": None if outcome.pool is None else outcome.pool.model_dump(mode="json", exclude={"entries"}),
        "ladder": None
        if outcome.ladder is None
        else outcome.ladder.model_dump(mode="json", exclude={"rungs"}),
        "reading": asdict(situation.reading),
    }


def targets(limits: Targets) -> dict[str, object]:
    """Return the targets in force, by name, as texts with units."""
    return limits.model_dump(mode="json", exclude_none=True)


def replacement_status(replacement: Replacement | None) -> dict[str, object] | None:
    """Return a replacement as plain data, without its config and key; None if there is none."""
    return None if replacement is None else replacement.model_dump(mode="json", exclude={"config", "key"})


def rollout_status(installation: Installation | None) -> dict[str, object] | None:
    """Return the last package of a roll-out as plain data; None if there was none."""
    return None if installation is None else installation.model_dump(mode="json")


def adaptation_status(state: AdaptationState | None) -> dict[str, object] | None:
    """Return the state of the adaptation as plain data; None without one."""
    return None if state is None else state.model_dump(mode="json")


def upgraded(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the content of a status file in the current format, whichever version of the daemon wrote it.

    Before options had ids, they were numbered and called `branches`, even if they were subnets. Then there
    were no slices, and later no energies, criteria and adaptation.
    """
    status = {**dict.fromkeys(_LATER), "criteria": [], **status}
    if "branches" not in status:
        return status
    kind = OptionKind.BRANCH if status["pool"] is None else OptionKind.SUBNET
    options = [{**option, "id": option_id(kind, place)} for place, option in enumerate(status["branches"])]
    return {**status, "option": option_id(kind, status["branch"]), "options": options}


def lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of text for the content of a status file.

    Args:
        status: The content, and `running`, which is True if the daemon runs.
    """
    running = "running" if status["running"] else "not running"
    yield f"monitor: {running}, process {status['pid']}, seen {status['time']}"
    yield f"version: {status['version']}"
    wanted = ", ".join(f"{name} {value}" for name, value in status["targets"].items())
    yield f"targets: {wanted or 'none'}" + ("" if status["fits"] else ", not met")
    yield f"ratio of measured to expected latency: {status['ratio']:.2f}" + (
        " (no inference in the last interval)" if status["idle"] else ""
    )
    yield from _decision(status)
    if (pool := status["pool"]) is not None:
        yield (
            f"subnets: {len(status['options'])}, scored on {counted(pool['examples'], 'example')}; "
            f"the original network is expected to take {format_time(pool['original_ms'], _DIGITS)}"
        )
    if (ladder := status["ladder"]) is not None:
        yield f"slices for {ladder['task']}: {_slices(status)}"
    for option in status["options"]:
        mark = "*" if option["id"] == status["option"] else " "
        predicted, expected = (format_time(option[key], _DIGITS) for key in ("predicted_ms", "expected_ms"))
        yield (
            f"{mark} {option['id']}: {predicted} now, {expected} expected, "
            f"{option['metric']} {option['accuracy']:.4g}{''.join(_costs(option))}"
        )
    yield f"device: {_reading(status['reading']) or 'no sensor values'}"
    if (searched_ms := status["searched_ms"]) is not None:
        yield f"searching for other subnets within {format_time(searched_ms, _DIGITS)} on an idle device"
    if (replacement := status["replacement"]) is not None:
        yield f"new package {replacement['goal']}: {replacement['phase']}, {replacement['reason']}"
    if (rollout := status["rollout"]) is not None:
        yield (f"roll-out {rollout['rollout']} of {rollout['goal']}: {rollout['phase']}, {rollout['reason']}")
    if (adaptation := status["adaptation"]) is not None:
        adapted = "adapted to the data" if adaptation["adapted"] else "not adapted to the data"
        yield f"{adapted}: shift {adaptation['shift']:.2f} after {counted(adaptation['examples'], 'example')}"
    for report in status["lending"] or ():
        counts = ", ".join(f"{count} {kind}" for kind, count in report["counts"].items())
        yield f"inferences: {counts}; {report['reason']}"
    for about, problem in status["problems"].items():
        yield f"problem with the {about}: {problem}"
    for entry in status["last"]:
        yield f"{entry['time']} {entry['event']}: {entry['reason']}"


def _decision(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the decision is based on, and its reasons."""
    if measured := ", ".join(_measured(status)):
        yield f"measured: {measured}"
    if criteria := ", ".join(map(_criterion, status["criteria"])):
        yield f"criteria: {criteria}"
    if any(option.get("helped") for option in status["options"]):
        yield f"placement: {_placement(status)}"
    yield f"why: {status['reason']}"
    if (cause := status["cause"]) is not None:
        yield f"cause: {cause['reason']}"


def _measured(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was measured of the running option, and the memory that an option may occupy."""
    if (measured_ms := status["measured_ms"]) is not None:
        computing = status["computing_share"]
        yield f"{format_time(measured_ms, _DIGITS)} per inference, {computing:.0%} of it processor time"
    if (measured_mj := status["measured_mj"]) is not None:
        yield f"{format_energy(measured_mj, _DIGITS)} per inference"
    if (memory := status["memory_for_option"]) is not None:
        yield f"{format_bytes(memory, _DIGITS)} of memory for an option"


def _placement(status: Mapping[str, Any]) -> str:
    """Return whether helpers take part, with the latency of both ways."""
    chosen = local_id(status["option"])
    ways = {one["helped"]: one["predicted_ms"] for one in status["options"] if local_id(one["id"]) == chosen}
    where = "with a helper" if status["option"] != chosen else "this device alone"
    if len(ways) < len((False, True)):
        return where
    alone, helped = (format_time(ways[each], _DIGITS) for each in (False, True))
    return f"{where}; {chosen} takes {helped} with a helper and {alone} alone"


def _criterion(score: Mapping[str, Any]) -> str:
    return f"{score['criterion']} {score['utility']:.2f} of 1 (weight {score['weight']:.2f})"


def _costs(option: Mapping[str, Any]) -> Iterator[str]:
    """Yield the energy and the memory of an option."""
    if (energy_mj := option.get("energy_mj")) is not None:
        yield f", {format_energy(energy_mj, _DIGITS)} ({option['energy_origin']})"
    if (memory := option.get("memory_bytes")) is not None:
        yield f", {format_bytes(memory, _DIGITS)}"


def _slices(status: Mapping[str, Any]) -> str:
    """Return the state of slices."""
    offered = sum(option["kind"] == OptionKind.SLICE for option in status["options"])
    cutting = "" if status["cutting"] is None else f"; {status['cutting']} is being cut"
    return f"{offered or 'none'} offered{cutting}"


def _reading(reading: Mapping[str, Any]) -> str:
    shown: dict[str, Callable[[Any], str]] = {
        "cpu_available": lambda share: f"{share:.0%} of the CPU is free",
        "cpu_mhz": lambda mhz: f"{mhz:.0f} MHz",
        "memory_available": lambda count: f"{format_bytes(count, _DIGITS)} of memory are free",
        "temperature": lambda degrees: f"{degrees:.0f} C",
        "battery": lambda share: f"battery {share:.0%}",
        "watts": lambda watts: f"{watts:.3g} W",
        "cpu_pressure": lambda share: f"processes waited for the CPU {share:.0%} of the time",
        "memory_pressure": lambda share: f"for memory {share:.0%}",
    }
    return ", ".join(show(reading[name]) for name, show in shown.items() if reading.get(name) is not None)
