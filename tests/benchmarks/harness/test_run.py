"""Exit codes and JSON of benchmarks."""

import json
import math
import signal
import subprocess
import sys
from datetime import UTC, datetime

import numpy as np
import pytest

from benchmarks.harness.records import read_records
from benchmarks.harness.run import (
    MissingDataError,
    add_data_option,
    add_seeds_option,
    median_seconds,
    paired_ratio,
    run,
    seconds,
    seeds_of,
)

FAST = {"seconds": {"max": 2.0}}

#: A benchmark that waits for its end.
ENDED = """
import time
from benchmarks.harness.run import run

def measure(options):
    try:
        print("measuring", flush=True)
        while True:
            time.sleep(60)
    finally:
        print("unwound", flush=True)

run("test", {}, measure, [])
"""


def outcome(tmp_path, figures, targets, *argv):
    """Return the exit code and the JSON of a benchmark that measures these values."""
    file = tmp_path / "figures.json"
    code = run("example", targets, lambda options: figures, [*argv, "--json", str(file)])
    return code, json.loads(file.read_text())


def test_the_json_has_exactly_the_documented_form(tmp_path):
    code, written = outcome(tmp_path, {"seconds": 1.5, "steps": 3}, FAST)

    machine, date, commit = written.pop("machine"), written.pop("date"), written.pop("commit")
    assert code == 0
    assert written == {
        "benchmark": "example",
        "quick": False,
        "command": "python -m benchmarks.example --json JSON",
        "figures": {"seconds": 1.5, "steps": 3},
        "targets": {"seconds": {"max": 2.0, "met": True}},
        "met": True,
    }
    assert datetime.fromisoformat(date) <= datetime.now(UTC)
    assert commit is None or commit.removesuffix("-dirty").isalnum()
    assert machine.keys() == {"processor", "cores", "memory_gib", "python", "load"}
    assert machine["processor"]
    assert machine["memory_gib"] > 0


@pytest.mark.parametrize(
    ("target", "figure", "code"),
    [
        ({"max": 2.0}, 2.0, 0),
        ({"max": 2.0}, 2.1, 1),
        ({"min": 2.0}, 2.0, 0),
        ({"min": 2.0}, 1.9, 1),
        ({"min": 1.0, "max": 2.0}, 1.5, 0),
        ({"min": 1.0, "max": 2.0}, 0.5, 1),
        ({"max": 2.0}, math.nan, 1),
        ({"min": 2.0}, math.nan, 1),
        ({"max": 2.0}, np.float64(2.1), 1),
    ],
)
def test_the_exit_code_says_whether_the_target_is_met(tmp_path, target, figure, code):
    got, written = outcome(tmp_path, {"ratio": figure}, {"ratio": target})

    assert (got, written["met"]) == (code, code == 0)
    assert written["figures"]["ratio"] == (None if math.isnan(figure) else figure)


def test_one_missed_target_fails_the_benchmark(tmp_path):
    code, written = outcome(tmp_path, {"seconds": 1.0, "ratio": 1.0}, {**FAST, "ratio": {"min": 2.0}})

    assert code == 1
    assert {name: target["met"] for name, target in written["targets"].items()} == {
        "seconds": True,
        "ratio": False,
    }


@pytest.mark.parametrize(
    ("full_run_only", "argv", "met"),
    [
        (False, (), False),
        (False, ("--quick",), False),
        (True, (), False),
        (True, ("--quick",), None),
    ],
)
def test_a_value_that_was_not_measured_is_null(tmp_path, capsys, full_run_only, argv, met):
    code, written = outcome(tmp_path, {}, {"ratio": {"min": 2.0, "full_run_only": full_run_only}}, *argv)

    assert (code, written["met"]) == ((0, True) if met is None else (1, False))
    assert written["targets"]["ratio"]["met"] is met
    printed = capsys.readouterr().out
    assert "not measured" in printed
    assert ("full run only" in printed) == (met is None)


def test_a_value_of_full_runs_counts_only_when_measured(tmp_path):
    targets = {"ratio": {"min": 2.0, "full_run_only": True}}

    assert outcome(tmp_path, {"ratio": 1.0}, targets, "--quick")[0] == 1


def test_missing_data_skips_the_benchmark_visibly(tmp_path, capsys):
    def measure(options):
        raise MissingDataError("give --data DIR")

    file = tmp_path / "figures.json"

    assert run("example", FAST, measure, ["--json", str(file)]) == 77
    assert "example: skipped: give --data DIR" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert (written["met"], written["figures"], written["skipped"]) == (False, {}, "give --data DIR")


def test_options_are_passed_to_the_benchmark():
    seen = []

    def measure(options):
        seen.append((options.quick, options.data))
        return {"seconds": 1.0}

    assert (
        run("example", FAST, measure, ["--data", "here"], lambda parser: parser.add_argument("--data")) == 0
    )
    assert seen == [(False, "here")]


def test_a_full_run_writes_a_record(records):
    run("porting.example", FAST, lambda options: {"seconds": 1.0}, [])

    (record,) = read_records(records)
    assert (record.benchmark, record.figures, record.met) == ("porting.example", {"seconds": 1.0}, True)
    assert record.file_name == f"porting.example-{record.commit}.json"
    assert (records / record.file_name).is_file()


@pytest.mark.parametrize("argv", [["--quick"], ["--json", "elsewhere.json"]])
def test_a_quick_run_or_one_with_another_output_writes_no_record(records, argv, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("example", FAST, lambda options: {"seconds": 1.0}, argv)

    assert not read_records(records)


def test_a_skipped_run_writes_no_record(records):
    def measure(options):
        raise MissingDataError("give --data DIR")

    run("example", FAST, measure, [])

    assert not read_records(records)


def test_a_record_contains_the_options(records):
    def add_options(parser):
        add_data_option(parser)
        add_seeds_option(parser)
        parser.add_argument("--network")

    run(
        "example",
        FAST,
        lambda options: {"seconds": 1.0},
        ["--network", "snips", "--data", "/a/b"],
        add_options,
    )

    (record,) = read_records(records)
    assert (record.network, record.seeds) == ("snips", (0, 1, 2))
    assert record.command == "python -m benchmarks.example --network snips --data DATA"
    assert record.file_name == f"example-snips-{record.commit}.json"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], [0, 1, 2]),
        (["--quick"], [0]),
        (["--seeds", "1", "2"], [1, 2]),
        (["--seeds", "1", "2", "--quick"], [1]),
    ],
)
def test_the_seeds_depend_on_the_run(argv, expected):
    seeds = []

    def measure(options):
        seeds.extend(seeds_of(options))
        return {}

    run("example", {}, measure, argv, add_seeds_option)

    assert seeds == expected


def test_a_benchmark_that_is_ended_ends_what_it_has_started():
    command = [sys.executable, "-c", ENDED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "measuring\n"
        process.terminate()
        assert process.stdout.read() == "unwound\n"
    assert process.returncode == 128 + signal.SIGTERM


def test_an_unknown_option_is_an_error():
    with pytest.raises(SystemExit) as left:
        run("example", FAST, lambda options: {}, ["--fast"])
    assert left.value.code == 2


class Clock:
    """A clock that only advances through the functions that it makes."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def lasting(self, *durations, before=lambda: None):
        """Return a function whose calls take these numbers of seconds."""
        left = iter(durations)

        def function():
            before()
            self.now += next(left)

        return function


def test_pairs_are_measured_alternately():
    """The ratios are 2, 4 and 3."""
    calls, clock = [], Clock()
    a = clock.lasting(1.0, 2.0, 3.0, before=lambda: calls.append("a"))
    b = clock.lasting(2.0, 8.0, 9.0, before=lambda: calls.append("b"))

    assert paired_ratio(a, b, 3, clock) == (2.0, 8.0, 3.0)
    assert calls == ["a", "b"] * 3


def test_results_are_medians_over_repetitions():
    clock = Clock()
    assert seconds(clock.lasting(1.0, 9.0), 2, clock) == [1.0, 9.0]
    assert median_seconds(clock.lasting(1.0, 9.0, 2.0), 3, clock) == 2.0
