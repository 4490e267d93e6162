"""The list of slow tests names only existing tests, and is made from measured durations."""

import re

import pytest

from tests.support.paths import REPOSITORY
from tests.support.slow import ESSENTIAL, listed, too_long


@pytest.mark.parametrize("tests", [sorted(listed()), ESSENTIAL], ids=["listed", "essential"])
def test_every_listed_test_exists(tests):
    missing = []
    for test in tests:
        path, _, name = test.partition("::")
        file = REPOSITORY / "tests" / path
        function = name.partition("[")[0].rpartition("::")[2]
        if not file.is_file() or not re.search(rf"def {function or 'test_.*'}\(", file.read_text()):
            missing.append(test)
    assert missing == []


def test_the_duration_of_a_test_includes_its_fixtures():
    durations = """
0.80s setup    tests/a/test_b.py::test_c[two words]
0.60s call     tests/a/test_b.py::test_c[two words]
1.20s call     tests/a/test_b.py::test_d
""".splitlines()
    assert too_long(durations) == {"a/test_b.py::test_c[two words]"}
    assert too_long(f"9.00s call     tests/{begin}" for begin in ESSENTIAL) == set()
