"""Tests of benchmarks leave no records in the repository."""

import pytest

from benchmarks.harness import records as harness_records


@pytest.fixture(autouse=True)
def records(tmp_path, monkeypatch):
    """Return the directory of records."""
    directory = tmp_path / "records"
    monkeypatch.setattr(harness_records, "RECORDS", directory)
    return directory
