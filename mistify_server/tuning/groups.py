"""Creation of groups of devices that tune together."""

from mistify.errors import Problem, invalid_config
from mistify.parsing.jsonc import JsonError, read_json
from mistify.parsing.validation import shown
from mistify.peers.correlation import correlation as correlation_of
from mistify_server.names import check_name
from mistify_server.store.tuning import Group, TuningStore


def add_group(
    tuning: TuningStore, name: str, *, job_id: str, batch: int, correlation: str, settings_text: str
) -> Group:
    """Add a group after checking the settings of its correlation measure.

    Args:
        name: The name with which devices join.
        job_id: Id of the job that made the packages.
        batch: Index of the job's collective batch.
        correlation: Name of the correlation measure.
        settings_text: Settings of the correlation measure as a JSON object.

    Raises:
        MistifyError: INVALID_CONFIG, with every problem; CONFLICT, the name is taken; NOT_FOUND, there is no
            such job or batch.
    """
    check_name(name)
    group = Group(name, job_id, batch, correlation, _settings(settings_text))
    correlation_of(correlation, group.settings)
    tuning.add_group(group)
    return group


def _settings(text: str) -> dict[str, object]:
    try:
        value, problems = read_json(text)
    except JsonError as error:
        raise invalid_config([error.problem], "the settings") from error
    if isinstance(value, dict) and not problems:
        return value
    expected = Problem("the settings", shown(value), "an object", 'for example {"time_hours": 1}')
    raise invalid_config(problems or [expected], "the settings")
