import json
import multiprocessing
import os
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mistify.errors import ErrorCode, MistifyError
from mistify_client.privacy.ledger import PrivacyLedger

BUDGET = Fraction(5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "ledger"


def recorded(path: Path) -> Fraction:
    """Return the sum of the records in the file, parsed by hand."""
    lines = path.read_text().splitlines()
    return sum(
        (Fraction(json.loads(line[65:])["epsilon_billionths"], 10**9) for line in lines[1:]), Fraction(0)
    )


def refusal(ledger: PrivacyLedger, epsilon: Fraction | int = 1) -> str:
    with pytest.raises(MistifyError) as caught:
        ledger.spend(Fraction(epsilon), "a model")
    assert caught.value.code is ErrorCode.PRIVACY_BUDGET
    return caught.value.message


def test_spending_is_recorded_and_the_whole_budget_can_be_spent(path):
    for epsilon in ("1.5", "0.25", "3.25"):
        PrivacyLedger(path, BUDGET).spend(Fraction(epsilon), "a model")
    assert PrivacyLedger(path, BUDGET).spent() == BUDGET == recorded(path)
    assert "0 is left of the budget of 5" in refusal(PrivacyLedger(path, BUDGET), Fraction(1, 10**9))


def test_a_release_beyond_the_budget_is_refused_and_not_recorded(path):
    ledger = PrivacyLedger(path, BUDGET)
    ledger.spend(Fraction(4), "a model")
    assert "a model needs an epsilon of 1.5; 1 is left" in refusal(ledger, Fraction(3, 2))
    assert ledger.spent() == 4


def test_rounding_never_favours_the_caller(path):
    ledger = PrivacyLedger(path, Fraction(1))
    for _ in range(2):
        ledger.spend(Fraction(1, 3), "a model")
    assert ledger.spent() > Fraction(2, 3)
    refusal(ledger, Fraction(1, 3))


def test_epsilons_have_to_be_positive(path):
    for epsilon in (Fraction(0), Fraction(-1)):
        with pytest.raises(ValueError, match="above 0"):
            PrivacyLedger(path, BUDGET).spend(epsilon, "a model")


def test_the_record_is_synced_before_the_release(path, monkeypatch):
    """After a power cut, only the content at the last sync is certain to remain."""
    synced = []
    sync = os.fsync

    def note(file: int) -> None:
        sync(file)
        synced.append(path.read_bytes())

    monkeypatch.setattr(os, "fsync", note)
    PrivacyLedger(path, BUDGET).spend(Fraction(1), "a model")
    assert synced[-1] == path.read_bytes()
    assert recorded(path) == 1


def test_a_crash_at_any_byte_of_a_record_leaves_a_working_ledger(path):
    """Earlier records remain, and the interrupted release did not happen."""
    ledger = PrivacyLedger(path, BUDGET)
    ledger.spend(Fraction(2), "first")
    before = path.read_bytes()
    ledger.spend(Fraction(2), "second")
    after = path.read_bytes()
    for size in range(len(before), len(after) - 1):
        for rest in (b"", b"\0" * 20):
            path.write_bytes(after[:size] + rest)
            assert ledger.spent() == 2
            ledger.spend(Fraction(3), "third")
            assert recorded(path) == ledger.spent() == BUDGET
            refusal(ledger, Fraction(1, 100))


@pytest.mark.parametrize("rest", [b"", b"\0" * 20], ids=["no end", "zeros"])
def test_a_complete_record_without_a_line_end_counts(path, rest):
    """Editors and `$(cat)` may remove the line end, and an interrupted release may not have written it."""
    ledger = PrivacyLedger(path, BUDGET)
    ledger.spend(Fraction(4), "a model")
    whole = path.read_bytes()
    path.write_bytes(whole.rstrip(b"\n") + rest)
    assert "1 is left" in refusal(ledger, Fraction(2))
    assert path.read_bytes() == whole
    ledger.spend(Fraction(1), "the rest")
    assert recorded(path) == ledger.spent() == BUDGET


def test_a_changed_record_is_damage_even_without_a_line_end(path):
    ledger = PrivacyLedger(path, BUDGET)
    ledger.spend(Fraction(4), "a model")
    path.write_bytes(path.read_bytes().replace(b"4000000000", b"1").rstrip(b"\n"))
    assert "is damaged in line 2" in refusal(ledger)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.fractions("1/100", 3), st.booleans(), st.floats(0, 1)), min_size=1, max_size=12
    )
)
def test_random_crashes_never_let_releases_exceed_the_budget(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("ledger") / "ledger"
    ledger, released = PrivacyLedger(path, BUDGET), Fraction(0)
    for epsilon, crashes, share in steps:
        before = path.stat().st_size if path.exists() else 0
        try:
            ledger.spend(epsilon, "a model")
        except MistifyError:
            continue
        if crashes:  # a crash while writing the record: nothing was released
            size = path.stat().st_size
            os.truncate(path, before + int(share * (size - before - 1)))
        else:
            released += epsilon
        assert released <= PrivacyLedger(path, BUDGET).spent() <= BUDGET


def test_a_crash_at_any_byte_never_lets_the_total_exceed_the_budget(path):
    ledger = PrivacyLedger(path, BUDGET)
    for _ in range(3):
        ledger.spend(Fraction(1), "a model")
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        spent = ledger.spent()
        ledger.spend(BUDGET - spent, "the rest")
        refusal(ledger, Fraction(1, 10**9))
        assert recorded(path) == BUDGET


def test_damage_before_the_end_stops_all_releases(path):
    ledger = PrivacyLedger(path, BUDGET)
    for _ in range(3):
        ledger.spend(Fraction(1), "a model")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    changed = whole.replace(b'"epsilon_billionths": 1000000000', b'"epsilon_billionths": 1', 1)
    for content in (
        changed,
        b"".join(lines[:2] + lines[3:]),  # a record is missing
        b"".join([*lines[:2], lines[3], lines[2]]),  # two records are swapped
        b"".join([*lines, lines[-1]]),  # a record is duplicated
        b"".join(lines[1:]),
    ):
        path.write_bytes(content)
        assert "is damaged in line" in refusal(ledger)
        assert path.read_bytes() == content


def test_another_budget_is_refused(path):
    PrivacyLedger(path, BUDGET).spend(Fraction(1), "a model")
    assert "was created with the budget 5" in refusal(PrivacyLedger(path, Fraction(50)))


def test_a_release_is_refused_if_the_disk_cannot_be_written(path, monkeypatch):
    ledger = PrivacyLedger(path, BUDGET)
    ledger.spend(Fraction(1), "a model")
    monkeypatch.setattr(os, "write", lambda file, data: 5)
    assert "cannot be written" in refusal(ledger)


def _spend(path: Path, start: object, results: object) -> None:
    """Spend as much as possible, yielding to the other processes within every record."""
    write = os.write

    def write_after_the_others(file: int, data: bytes) -> int:
        for _ in range(20):
            os.sched_yield()
        return write(file, data)

    os.write = write_after_the_others
    start.wait()
    granted = 0
    for _ in range(30):
        try:
            PrivacyLedger(path, BUDGET).spend(Fraction(1, 10), "a model")
        except MistifyError:
            continue
        granted += 1
    results.put(granted)


def test_concurrent_processes_do_not_exceed_the_budget(path):
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(3), context.Queue()
    processes = [context.Process(target=_spend, args=(path, start, results)) for _ in range(3)]
    for process in processes:
        process.start()
    granted = sum(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    assert granted == 50
    assert recorded(path) == BUDGET
