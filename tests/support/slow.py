"""The tests in `tests/slow.txt`, which `make test` leaves to `make test-slow` because they take long.

After `pytest --durations 0 > LOG`, `python -m tests.support.slow LOG` adds those that took too long.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.support.paths import REPOSITORY

LIST: Final = REPOSITORY / "tests" / "slow.txt"

#: Tests that take at least this many seconds are left to `make test-slow`.
SLOW_SECONDS: Final = 1.3

#: Beginnings of the names of tests that are worth running at every change although they are slow: complete
#: paths through the system, and who may do what.
ESSENTIAL: Final = (
    "end_to_end/test_recovery.py::test_all_goals_are_completed_after_a_kill",
    "end_to_end/test_adaptivenet.py::test_a_package_lists_its_blocks",
    "end_to_end/test_adaptivenet.py::test_a_device_runs_the_chosen_subnet",
    "end_to_end/test_uploads.py::test_a_job_with_files_on_another_machine_is_ported",
    "end_to_end/test_sources.py::test_a_model_with_two_outputs_is_ported_with_their_names",
    "mistify_server/engines/test_conformance.py::test_a_task_returns_its_result_and_reports_progress[ray]",
    "mistify_server/engines/test_conformance.py::test_cancelling_a_task_ends_its_worker[ray]",
    "mistify_server/jobs/test_restart.py::test_a_stopped_server_leaves_a_job_to_resume",
    "mistify_server/worker/test_graphs.py::test_a_graph_is_inspected",
    "mistify_server/worker/packaging/test_models.py::test_a_package_describes_itself",
    "mistify_server/worker/packaging/training/test_network.py::test_steps_of_adam_agree_with_tensorflow[chain]",
    "mistify_client/monitor/test_searching.py::test_other_subnets_are_searched_and_run_if_they_fit",
    "mistify_client/rpc/test_tuning.py::test_models_are_exchanged_between_devices",
    "mistify_server/jobs/test_postgresql_outages.py::test_a_database_that_hangs_is_noticed_and_used_again",
    "mistify_server/jobs/test_restart.py::test_killing_a_server_loses_no_results[reference]",
    "mistify_server/jobs/test_shared_jobs.py::test_another_server_completes_the_jobs_of_one_that_was_killed",
    "mistify_server/web/test_access.py::",
    "mistify_server/web/test_scopes.py::",
    "mistify_server/web/test_tenants.py::",
)

_DURATION: Final = re.compile(r"\s*(?P<seconds>[\d.]+)s (call|setup|teardown)\s+tests/(?P<test>\S.*?)\s*")


def listed() -> frozenset[str]:
    """Return the listed tests, each as its path below `tests/`, name and parameters."""
    return frozenset(LIST.read_text().splitlines())


def too_long(durations: Iterable[str]) -> set[str]:
    """Return the tests that took too long according to a log of `pytest --durations 0`."""
    seconds = Counter[str]()
    for line in durations:
        if match := _DURATION.fullmatch(line):
            seconds[match["test"]] += float(match["seconds"])
    slow = (test for test, took in seconds.items() if took >= SLOW_SECONDS)
    return {test for test in slow if not test.startswith(ESSENTIAL)}


if __name__ == "__main__":
    with Path(sys.argv[1]).open() as log:
        LIST.write_text("\n".join(sorted(listed() | too_long(log))) + "\n")
