import os
from pathlib import Path

import pytest

from mistify.processors import usable_processors

ALLOWED = len(os.sched_getaffinity(0))


def machine(root: Path, groups: str, files: dict[str, str]) -> Path:
    for name, content in {"proc/self/cgroup": groups, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_a_process_without_limits_may_use_the_processors_on_which_it_may_run(tmp_path: Path) -> None:
    assert usable_processors(tmp_path) == ALLOWED
    free = machine(tmp_path, "0::/app\n", {"sys/fs/cgroup/app/cpu.max": "max 100000\n"})
    assert usable_processors(free) == ALLOWED


def test_fewer_processors_on_which_a_process_may_run_count(tmp_path: Path) -> None:
    every = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(every)})
        assert usable_processors(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, every)


@pytest.mark.parametrize(
    ("groups", "files"),
    [
        ("0::/app/part\n", {"app/part/cpu.max": "max 100000\n", "app/cpu.max": "50000 100000\n"}),
        ("0::/app/part\n", {"cpu.max": "50000 100000\n"}),
        ("0::/\n", {"cpu.max": "20000 100000\n"}),
        (
            "4:memory:/app\n3:cpu,cpuacct:/app\n",
            {
                "cpu,cpuacct/app/cpu.cfs_quota_us": "100000\n",
                "cpu,cpuacct/app/cpu.cfs_period_us": "100000\n",
                "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
        ),
    ],
)
def test_the_time_of_a_cgroup_or_one_above_is_a_limit(
    tmp_path: Path, groups: str, files: dict[str, str]
) -> None:
    limited = machine(tmp_path, groups, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert usable_processors(limited) == 1


def test_a_part_of_a_processor_counts_as_one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    assert usable_processors(tmp_path) == 8
    limited = machine(tmp_path, "0::/app\n", {"sys/fs/cgroup/app/cpu.max": "250000 100000\n"})
    assert usable_processors(limited) == 3
