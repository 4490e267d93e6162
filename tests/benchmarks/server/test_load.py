"""The other parts of the benchmark are measured if one fails."""

import sys
from subprocess import PIPE, Popen

import pytest

from benchmarks.server import load


def test_a_part_that_fails_has_no_figures_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    def watchers() -> dict[str, float]:
        raise TimeoutError("nobody answers")

    assert load._measured(watchers) == {}
    assert "watchers failed: nobody answers" in capsys.readouterr().err
    assert load._measured(lambda: {"storm_s": 1.0}) == {"storm_s": 1.0}


def test_clients_that_do_not_answer_fail_their_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_ANSWERING", 0.01)
    silent = "import sys; sys.stdin.read()"
    with Popen([sys.executable, "-c", silent], stdin=PIPE, stdout=PIPE, text=True) as process:
        with pytest.raises(TimeoutError, match="have not answered"):
            load.ClientProcess(process).measured(0.0)
        process.kill()
