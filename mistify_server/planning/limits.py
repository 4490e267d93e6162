"""Checks for limits that no network can meet, and for other goals that a model rules out."""

from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from mistify.config.data.targets import OVERALL, above_all_shares
from mistify.config.porting import PortingConfig
from mistify.config.reading import goal_budget, goal_path
from mistify.costs.axes import axis_of
from mistify.costs.budget import hardware_of, source_axis
from mistify.costs.quantization import Quantization
from mistify.errors import Problem
from mistify.jobs.plan import OutOfReach
from mistify.package.manifest import BRANCH_INPUT
from mistify.parsing.quantities import Quantity
from mistify.parsing.validation import InvalidValue, json_path, shown, unknown_name
from mistify_server.planning.batch import InspectedBatch, ResolvedBatch
from mistify_server.planning.tasks import unserved_tasks
from mistify_server.tasks.results import Inspection

#: The reason for restrictions on models that are graphs without layers.
_NO_STRUCTURE = "this model has no Keras structure, so it can only be quantized and packaged, not adapted"
_FIXED_COST = f"the model's own cost: {_NO_STRUCTURE}"
_USE_KERAS = "give the Keras model itself, saved with model.save(FILE)"

#: How many times longer the source may take in a repeated measurement.
_LATENCY_VARIATION = 1.25


def unreachable(resolved: ResolvedBatch, inspection: Inspection) -> Iterator[Problem]:
    """Yield a problem for each limit that no network can meet, and every problem of `unusable`."""
    yield from unusable(resolved, inspection)
    batch = resolved.batch
    for index, config in zip(batch.indices, batch.configs, strict=True):
        for axis, limit in below_least(config, inspection).items():
            yield _unreachable_limit(index, axis, config, limit, inspection)


def unusable(resolved: ResolvedBatch, inspection: Inspection) -> Iterator[Problem]:
    """Yield a problem for each goal that the model cannot meet, whatever its limits."""
    batch = resolved.batch
    for index, config in zip(batch.indices, batch.configs, strict=True):
        yield from _invalid_targets(index, config, inspection)
        yield from unserved_tasks(index, config, inspection)
        if not inspection.adaptable:
            yield from _untrainable(index, config)
        elif config.branches is not None and BRANCH_INPUT in inspection.inputs:
            yield Problem(
                place=f"[{index}].branches",
                value=f'{config.branches.count} branches of a model with an input "{BRANCH_INPUT}"',
                expected="a model without one, because this input selects the branch in the package",
                fix=f'rename the input "{BRANCH_INPUT}" in the model and its data, or leave the branches out',
            )


def out_of_reach(resolved: ResolvedBatch, inspection: Inspection) -> Iterator[OutOfReach]:
    """Yield each limit that no network can meet, with the nearest feasible limit."""
    for config in resolved.batch.configs:
        for axis in below_least(config, inspection):
            yield OutOfReach(
                goal=config.id,
                limit=goal_path(axis).rpartition(".")[2],
                value=axis_of(axis).kind.format(axis_of(axis).limit(config.limits()[axis])),
                nearest=nearest_limit(config, axis, inspection),
            )


def within_reach(resolved: ResolvedBatch, inspection: Inspection) -> InspectedBatch:
    """Return the batch reduced to the goals with feasible limits."""
    batch = resolved.batch
    possible = [
        (config, index)
        for config, index in zip(batch.configs, batch.indices, strict=True)
        if not below_least(config, inspection)
    ]
    configs, indices = tuple(c for c, _ in possible), tuple(i for _, i in possible)
    return InspectedBatch(
        replace(resolved, batch=replace(batch, configs=configs, indices=indices)), inspection
    )


def below_least(config: PortingConfig, inspection: Inspection) -> dict[str, float]:
    """Return the limits of a goal that are below the network's minimum costs, by axis."""
    return {
        axis: limit
        for axis, limit in goal_budget(config, inspection.costs).items()
        if limit < inspection.floor.get(axis, 0.0)
    }


def nearest_limit(config: PortingConfig, name: str, inspection: Inspection) -> str:
    """Return the nearest feasible limit on an axis, in the notation of configs, with three digits.

    Limits on latency include a margin, because the next measurement on this machine may take longer.
    """
    axis = axis_of(name)
    least, relative = inspection.floor[name], config.limits()[name].relative
    if relative:
        least /= inspection.costs[source_axis(name)]
    elif hardware_of(name):
        least *= _LATENCY_VARIATION
    amount = Decimal(repr(axis.format.converted(least)))
    digit = Decimal(1).scaleb(amount.adjusted() - 2)
    rounded = amount.quantize(digit, ROUND_FLOOR if axis.higher_is_better else ROUND_CEILING)
    return axis.kind.format(Quantity(float(rounded), relative))


def _unreachable_limit(
    index: int, name: str, config: PortingConfig, limit: float, inspection: Inspection
) -> Problem:
    """Describe a limit outside the reachable range.

    Args:
        name: Name of the axis.
        limit: The limit in the axis' unit.
        inspection: Inspection with the minimum cost of a network (the maximum if higher is better).
    """
    axis, requested, adaptable = axis_of(name), config.limits()[name], inspection.adaptable
    amount, least = (axis.format.in_plain_unit(cost) for cost in (limit, inspection.floor[name]))
    bound = "most" if axis.higher_is_better else "least"
    meaning = f"the {bound} that this network can reach" if adaptable else _FIXED_COST
    nearest = nearest_limit(config, name, inspection)
    return Problem(
        place=f"[{index}].{goal_path(name)}",
        value=f'"{axis.limit(requested).value:g}x" ({amount})' if requested.relative else amount,
        expected=f"at {bound} {least}, {meaning}",
        fix=f'write "{nearest}", the nearest feasible limit, or '
        + ("start from a smaller model" if adaptable else _USE_KERAS),
    )


def _invalid_targets(index: int, config: PortingConfig, inspection: Inspection) -> Iterator[Problem]:
    """Yield a problem for each target for a missing output, and for each target share above 1."""
    if inspection.metric is None:
        return
    metrics = {**inspection.metrics, OVERALL: inspection.metric}
    for output, figure in (config.adaptation_goal.accuracy or {}).items():
        place = json_path([] if output == OVERALL else [output], f"[{index}].adaptation_goal.accuracy")
        metric = metrics.get(output)
        if metric is None:
            yield InvalidValue(output, *unknown_name(output, inspection.metrics)).problem(place)
        elif wrong := above_all_shares(figure, output, metric):
            yield wrong.problem(place)


def _untrainable(index: int, config: PortingConfig) -> Iterator[Problem]:
    """Yield a problem for each setting that requires training, for a model that cannot be trained."""
    if config.quantization.precision is Quantization.INT8_QAT:
        expected = f"a precision without training: {_NO_STRUCTURE}"
        yield Problem(f"[{index}].quantization", '"int8-qat"', expected, 'ask for "int8"')
    if config.branches is not None:
        expected = f"none, because they have to be adapted: {_NO_STRUCTURE}"
        yield Problem(f"[{index}].branches", f"{config.branches.count} branches", expected, "leave them out")
    if config.exits is not None:
        expected = f"none, because their heads have to be trained: {_NO_STRUCTURE}"
        yield Problem(f"[{index}].exits", str(config.exits), expected, "leave them out")
    if config.compression is not None:
        expected = f"none, because it needs training: {_NO_STRUCTURE}"
        yield Problem(f"[{index}].compression", str(config.compression), expected, "leave it out")
    if config.task is not None:
        expected = f"none, because nothing is cut: {_NO_STRUCTURE}"
        yield Problem(f"[{index}].task", str(config.task), expected, "leave it out")
    if config.tuning.trainable != "none":
        expected = f'"none", because it needs layers: {_NO_STRUCTURE}'
        yield Problem(f"[{index}].tuning.trainable", shown(config.tuning.trainable), expected, "leave it out")
    if config.tuning.adaptation:
        expected = f"false, because it needs batch norms: {_NO_STRUCTURE}"
        yield Problem(f"[{index}].tuning.adaptation", "true", expected, "leave it out")
    if config.dataset.losses:
        expected = f"none, because nothing is trained: {_NO_STRUCTURE}"
        yield Problem(f"[{index}].dataset.losses", shown(config.dataset.losses), expected, "leave them out")
    if rules := config.algorithm.config.get("layers"):
        expected = f"none, because there are no layers: {_NO_STRUCTURE}"
        yield Problem(f"[{index}].algorithm.config.layers", shown(rules), expected, "leave them out")
