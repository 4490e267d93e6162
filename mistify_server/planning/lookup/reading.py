"""Reading of configs, and lookup of the names in them."""

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
    """Return the configs in a text; a text with too many goals for any job is refused unread.

    Args:
        config_text: JSON as in the paper's Figure 3.
        max_goals: Maximum number of goals in a job.
        common: Values that all goals share (`read_batch`).

    Raises:
        MistifyError: INVALID_CONFIG, the text is not JSON or has too many goals.
    """
    check_count = partial(reject_too_many, most=max_goals)
    return read_batch(config_text, common=common, check_count=check_count)


def read_and_resolve(
    config_text: str, resolver: BatchResolver, max_goals: int
) -> tuple[BatchReading, list[ResolvedBatch]]:
    """Return the configs in a text with the models, data and devices that they name.

    Valid configs, and the valid parts of others, are looked up despite mistakes elsewhere.

    Args:
        config_text: JSON as in the paper's Figure 3.
        max_goals: Maximum number of goals in a job.

    Raises:
        MistifyError: INVALID_CONFIG, INVALID_MODEL or INVALID_DATASET with all problems found without a
            worker.
    """
    reading, problems = read_configs(config_text, max_goals), ProblemCollector()
    configs = sorted([*reading.configs.items(), *repaired_configs(reading.invalid)])
    resolved = resolver.resolve(collective_batches(dict(configs)), problems)
    if reading.problems:
        raise invalid_config([*reading.problems, *reading.in_the_file(problems.problems)])
    with reading.problems_at_their_places():
        reject(problems.problems)
    return reading, resolved
