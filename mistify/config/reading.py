"""A batch of porting configs: parsing and validation, and grouping goals for collective adaptation."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from mistify.config.adaptation_goal import KnownGoal
from mistify.config.algorithm import AlgorithmConfig
from mistify.config.data.dataset import DatasetConfig
from mistify.config.data.loss import LOSSES, known_losses
from mistify.config.data.metric import METRICS, known_metrics
from mistify.config.data.targets import OVERALL, above_all_shares
from mistify.config.expansion import Entry, entries_of, in_the_file
from mistify.config.porting import LONGEST_ID, PortingConfig
from mistify.costs.axes import axis_of
from mistify.costs.budget import Costs, source_axis
from mistify.costs.profiles import NominalProfile
from mistify.errors import THE_CONFIG, MistifyError, Problem, invalid_config
from mistify.parsing.jsonc import JsonError, read_json
from mistify.parsing.rechecking import Rechecked, rechecked
from mistify.parsing.validation import (
    MOST_PROBLEMS,
    InvalidValue,
    Keys,
    explained,
    first_of,
    further,
    json_path,
    mistake_of,
    shown,
    unknown_name,
)
from mistify.plugins import UnusablePlugInError, check_plug_in, plug_ins

_OF_THE_JOB: Final = "of the job"

#: Placeholder for the values shared by all goals of a job, to validate added configs without knowing the job.
OF_ANY_JOB: Final[Mapping[str, object]] = {
    "model": _OF_THE_JOB,
    "dataset": {"train": _OF_THE_JOB, "test": _OF_THE_JOB},
}


@dataclass(frozen=True)
class CollectiveBatch:
    """Configs that share model, dataset and algorithm and are adapted together (4.3).

    `indices` are the positions of the configs in their file, for the paths in errors.
    """

    model: str
    dataset: DatasetConfig
    algorithm: AlgorithmConfig
    configs: tuple[PortingConfig, ...]
    indices: tuple[int, ...]


@dataclass(frozen=True)
class BatchReading:
    """The result of parsing a text with configs, as far as it is valid.

    Attributes:
        source: The name of the text in errors.
        configs: The valid goals, by their indices.
        invalid: The invalid goals by their indices, each with its value and its errors.
        problems: The problems of the text, at their places in it: of each kind about the first thousand, and
            how many follow. A value with a problem as JSON (a duplicate key, an infinite number) is not
            reported twice.
        entries: All goals after expansion.
    """

    source: str
    configs: Mapping[int, PortingConfig]
    invalid: Mapping[int, tuple[Any, ValidationError]]
    problems: tuple[Problem, ...]
    entries: Sequence[Entry]

    def checked(self) -> tuple[PortingConfig, ...]:
        """Return the configs.

        Raises:
            MistifyError: INVALID_CONFIG with every problem of the text.
        """
        if self.problems:
            raise invalid_config(self.problems, self.source)
        return tuple(self.configs.values())

    @contextmanager
    def problems_at_their_places(self) -> Iterator[None]:
        """Map problems of configs, `[INDEX].PATH`, raised in the block to their places in the text."""
        try:
            yield
        except MistifyError as error:
            if not error.problems:
                raise
            raise MistifyError(error.code, error.message, self.in_the_file(error.problems)) from error

    def in_the_file(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return problems of configs, `[INDEX].PATH`, at their places in the text, without duplicates."""
        return in_the_file(problems, self.entries)


def parse_batch(
    text: str,
    source: str = THE_CONFIG,
    *,
    server_knows_more: bool = False,
    common: Mapping[str, object] | None = None,
) -> tuple[PortingConfig, ...]:
    """Return the configs of a text without problems; see `read_batch`.

    Raises:
        MistifyError: INVALID_CONFIG with every problem of the text.
    """
    return read_batch(text, source, server_knows_more=server_knows_more, common=common).checked()


def read_batch(
    text: str,
    source: str = THE_CONFIG,
    *,
    server_knows_more: bool = False,
    common: Mapping[str, object] | None = None,
    check_count: Callable[[int], object] = lambda _: None,
) -> BatchReading:
    """Parse a batch of configs: a JSON list as in Figure 3, one config, or shorthand.

    See `mistify.config.expansion` for the shorthand.

    Args:
        text: JSON; comments and trailing commas are allowed.
        source: The name of the text in errors, such as its file name.
        server_knows_more: Keep limits on unknown axes and metrics for the server to check.
        common: Values that goals added to a job share with it: they may be left out, and do not count as set
            in their configs.
        check_count: Called with the number of goals before they are checked; may raise an error.

    Raises:
        MistifyError: INVALID_CONFIG, the text is not JSON.
    """
    try:
        value, problems = read_json(text)
    except JsonError as error:
        raise invalid_config([error.problem], source) from error
    entries = entries_of(value, problems, check_count)
    known = {problem.place for problem in problems}
    if not entries and not problems:
        problems.append(Problem("the list", "no config", "at least one", "add a config"))
    configs, invalid = _validated([entry.value for entry in entries], common or {})
    repaired: dict[int, Rechecked[PortingConfig]] = {}
    wrong, others = list[Problem](), 0
    for index, (value, mistakes) in invalid.items():
        if len(wrong) < MOST_PROBLEMS:
            repaired[index] = rechecked(PortingConfig, _with_common(value, common or {}), f"[{index}]")
            wrong += repaired[index].problems
        else:
            others += mistakes.error_count()
    problems += [problem for problem in in_the_file(wrong, entries) if problem.place not in known]
    problems += further(others)
    together = _problems_together(entries, configs, repaired, server_knows_more)
    problems += in_the_file(together, entries)
    return BatchReading(source, configs, invalid, tuple(dict.fromkeys(problems)), entries)


def _validated(
    values: Sequence[Any], common: Mapping[str, object]
) -> tuple[dict[int, PortingConfig], dict[int, tuple[Any, ValidationError]]]:
    """Return the valid configs, and the invalid ones with their errors, by their indices."""
    configs: dict[int, PortingConfig] = {}
    invalid: dict[int, tuple[Any, ValidationError]] = {}
    for index, value in enumerate(values):
        try:
            config = PortingConfig.model_validate(_with_common(value, common))
        except ValidationError as error:
            invalid[index] = value, error
        else:
            config.model_fields_set.difference_update(common.keys() - value.keys())
            configs[index] = config
    return configs, invalid


def _with_common(value: Any, common: Mapping[str, object]) -> Any:
    return {**common, **value} if isinstance(value, dict) else value


def _problems_together(
    entries: Sequence[Entry],
    configs: Mapping[int, PortingConfig],
    repaired: Mapping[int, Rechecked[PortingConfig]],
    server_knows_more: bool,
) -> Iterator[Problem]:
    """Yield problems between configs, including the valid parts of invalid ones."""

    def written(*parts: Keys) -> Mapping[int, PortingConfig]:
        """Return the configs whose given parts are unchanged by the repair."""
        if not repaired:
            return configs
        usable = {
            index: each.model
            for index, each in repaired.items()
            if each.model is not None and all(each.as_written(*part) for part in parts)
        }
        return dict(sorted({**configs, **usable}.items()))

    values, places = [entry.value for entry in entries], [entry.place for entry in entries]
    if not server_knows_more:
        yield from _unknown_limits(values)
        yield from first_of(_unusable_names(written()))
    accuracy, metrics = ("adaptation_goal", "accuracy"), (("dataset", "metric"), ("dataset", "metrics"))
    yield from first_of(_figures_above_shares(written(accuracy, *metrics)))
    yield from first_of(_unanswered_tasks(written(("task",), ("dataset",))))
    yield from first_of(_repeated_ids(values, places))
    yield from first_of(_unequal_hardware(written(("hardware",)), places))


def _figures_above_shares(configs: Mapping[int, PortingConfig]) -> Iterator[Problem]:
    """Yield a problem for each accuracy above 1 that is not declared to be an error.

    Without a named metric, the default may be an error; for a single output, inspection finds out.
    """
    for index, config in configs.items():
        data = config.dataset
        for output, figure in (config.adaptation_goal.accuracy or {}).items():
            metric = data.metric if output == OVERALL else data.metrics.get(output)
            wrong = above_all_shares(figure, output, metric)
            if wrong is not None and (metric is not None or output == OVERALL):
                yield wrong.problem(
                    json_path([output] if output else [], f"[{index}].adaptation_goal.accuracy")
                )


def _unanswered_tasks(configs: Mapping[int, PortingConfig]) -> Iterator[Problem]:
    """Yield a problem for each task that does not match the data."""
    for index, config in configs.items():
        mistake = mistake_of(config.check_answers) if "dataset" in config.model_fields_set else None
        if mistake is not None:
            yield mistake.problem(f"[{index}].task")


def _repeated_ids(entries: Sequence[object], places: Sequence[str]) -> Iterable[Problem]:
    first: dict[str, int] = {}
    for index, entry in enumerate(entries):
        identifier = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(identifier, str) or len(identifier) > LONGEST_ID:
            continue  # which is reported on its own
        if first.setdefault(identifier.casefold(), index) != index:
            other = places[first[identifier.casefold()]]
            expected = f"an id different from that of {other}, ignoring case"
            of_one_list = other == places[index]
            fix = (
                'add the difference in braces, such as "{hardware}"' if of_one_list else "rename one of them"
            )
            yield InvalidValue(identifier, expected, fix).problem(f"[{index}].id")


def _unknown_limits(entries: Sequence[object]) -> Iterable[Problem]:
    known = KnownGoal.model_fields
    unknown = list[tuple[int, str]]()

    def problem_of(limit: tuple[int, str]) -> Problem:
        index, key = limit
        place = json_path([key], f"[{index}].adaptation_goal")
        return Problem(place, f"the key {shown(key)}", *unknown_name(key, known))

    for index, entry in enumerate(entries):
        goal = entry.get("adaptation_goal") if isinstance(entry, dict) else None
        for key in goal if isinstance(goal, dict) else ():
            if key not in known:
                unknown.append((index, key))
    return explained(unknown, problem_of)


def _unusable_names(configs: Mapping[int, PortingConfig]) -> Iterable[Problem]:
    """Yield a problem for each metric and loss that is unknown, or comes from a faulty plug-in."""
    named = [
        (f"[{index}].dataset.{setting}", group, name)
        for index, config in configs.items()
        for setting, group, name in _named(config.dataset)
    ]
    if not named:  # as in most submissions
        return
    # Searching for plug-ins takes milliseconds, and the configs of a batch name the same ones.
    known = {METRICS: cache(known_metrics), LOSSES: cache(known_losses)}
    unusable = cache(lambda group, name: _unusable(name, known[group](), group))
    for place, group, name in named:
        invalid = unusable(group, name)
        if invalid is not None:
            yield invalid.problem(place)


def _named(data: DatasetConfig) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that name a metric or a loss outside the user's own files, with group and name."""
    if data.metric is not None and data.metric.value not in data.code:
        yield "metric", METRICS, data.metric.value
    for output, metric in data.metrics.items():
        if metric.value not in data.code:
            yield json_path(["metrics", output]), METRICS, metric.value
    for output, loss in data.losses.items():
        if loss not in data.code:
            yield json_path(["losses", output]), LOSSES, loss


def _unusable(name: str, known: Sequence[str], group: str) -> InvalidValue | None:
    """Return the problem of a metric's or loss's name that can be found without importing a plug-in."""
    if name not in known:
        nothing = f"the name of an entry point of {group}", "install the plug-in that defines it"
        return InvalidValue(name, *(unknown_name(name, known) if known else nothing))
    try:
        if point := plug_ins(group).get(name):
            check_plug_in(point)
    except UnusablePlugInError as error:
        return InvalidValue(name, "the name of a usable one", f"fix the plug-in {name}: {error}")
    return None


def _unequal_hardware(configs: Mapping[int, PortingConfig], places: Sequence[str]) -> Iterable[Problem]:
    first: dict[str, tuple[int, NominalProfile | None]] = {}
    for index, config in configs.items():
        profile = None if config.profile is None else config.profile.with_threads(1)
        name = config.device if profile is None else profile.name
        earlier, agreed = first.setdefault(name or "", (index, profile))
        if profile != agreed:
            figures = "no figures" if profile is None else str(profile)
            expected = f"the same figures for {name} as in {places[earlier]}"
            problem = InvalidValue(figures, expected, "give one of them another name")
            yield problem.problem(f"[{index}].hardware")


def collective_batches(
    configs: Sequence[PortingConfig] | Mapping[int, PortingConfig],
) -> list[CollectiveBatch]:
    """Group configs by model, dataset and algorithm (with its settings), in order of first appearance.

    Args:
        configs: All configs of a file, or some of them by their indices.
    """
    configs = configs if isinstance(configs, Mapping) else dict(enumerate(configs))
    if len(configs) == 1:  # as in most submissions
        return [_batch_of(configs, [*configs])]
    together: dict[tuple[str, ...], list[int]] = {}
    for index, config in configs.items():
        parts = config.dataset.model_dump(mode="json"), config.algorithm.config
        key = (config.model, config.algorithm.name, *(json.dumps(part, sort_keys=True) for part in parts))
        together.setdefault(key, []).append(index)
    return [_batch_of(configs, indices) for indices in together.values()]


def _batch_of(configs: Mapping[int, PortingConfig], indices: Sequence[int]) -> CollectiveBatch:
    first = configs[indices[0]]
    return CollectiveBatch(
        model=first.model,
        dataset=first.dataset,
        algorithm=first.algorithm,
        configs=tuple(configs[index] for index in indices),
        indices=tuple(indices),
    )


def profiles_of(configs: Iterable[PortingConfig]) -> list[NominalProfile]:
    """Return the nominal profiles that the goals of one `parse_batch` need, without duplicates."""
    return list(dict.fromkeys(config.profile for config in configs if config.profile is not None))


def goal_budget(config: PortingConfig, source_costs: Costs) -> dict[str, float]:
    """Return a goal's limits as a budget, relative ones resolved against the source's costs in float32.

    Raises:
        KeyError: A relative limit on an axis that `source_costs` does not have.
    """
    return {
        axis: limit.resolve(source_costs[source_axis(axis)]) if limit.relative else limit.value
        for axis, limit in config.limits().items()
    }


def goal_path(axis: str) -> str:
    """Return the place in a config that limits a cost axis: `adaptation_goal.FLOP` for `flops`."""
    return f"adaptation_goal.{axis_of(axis).key}"
