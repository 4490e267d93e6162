"""A text with configs, and all that its names stand for."""

from collections.abc import Mapping
from functools import partial

from mistify.config.reading import BatchReading, collective_batches, read_batch
from mistify.errors import invalid_config
from mistify_server.planning.batch import ResolvedBatch
from mistify_server.planning.lookup.invalid_goals import repaired_configs
from mistify_server.planning.lookup.resolver import BatchResolver
from mistify_server.planning.rejection import reject, reject_too_many
from mistify_server.tasks.problems import ProblemCollector


def read_configs(
    config_text: str, max_goals: int, common: Mapping[str, object] | None = None
) -> BatchReading:
    """Return the configs of a text, which are refused unread where they are too many for any job.

    Args:
        config_text: JSON as in the paper's Figure 3.
        max_goals: The most goals of a job.
        common: Values that all goals share (`read_batch`).

    Raises:
        MistifyError: INVALID_CONFIG, the text is no JSON, or has too many goals.
    """
    check_count = partial(reject_too_many, most=max_goals)
    return read_batch(config_text, common=common, check_count=check_count)


def read_and_resolve(
    config_text: str, resolver: BatchResolver, max_goals: int
) -> tuple[BatchReading, list[ResolvedBatch]]:
    """Return the configs of a text with the models, data and devices that they name.

    Mistakes in some do not keep others, or their other parts, from being looked up.

    Args:
        config_text: JSON as in the paper's Figure 3.
        resolver: Looks names up.
        max_goals: The most goals of a job.

    Raises:
        MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all that is found by reading
            the text and looking up its names: no worker is asked.
    """
    reading, problems = read_configs(config_text, max_goals), ProblemCollector()
    configs = sorted([*reading.configs.items(), *repaired_configs(reading.invalid)])
    resolved = resolver.resolve(collective_batches(dict(configs)), problems)
    if reading.problems:
        raise invalid_config([*reading.problems, *reading.in_the_file(problems.problems)])
    with reading.problems_at_their_places():
        reject(problems.problems)
    return reading, resolved
