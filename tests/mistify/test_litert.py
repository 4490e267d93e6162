import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mistify.litert import open_compiled, open_interpreter
from tests.support.paths import DATA

TINY = DATA / "tiny.tflite"

#: Opens a network while another thread writes to standard error.
SCRIPT = """
import os, sys
from pathlib import Path
from mistify.litert import open_compiled, open_interpreter

class Talking(type(Path())):
    def __str__(self):
        os.write(2, b"another thread\\n")
        return super().__str__()

interpreter = open_interpreter(Talking(sys.argv[1]), 1)
interpreter.allocate_tensors()
os.write(2, b"the end\\n")
"""


def standard_error_of(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script, TINY], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    return done.stderr


def test_only_the_notice_of_litert_is_removed_from_standard_error() -> None:
    """The other thread writes twice, because the first interpreter is opened twice."""
    assert standard_error_of(SCRIPT) == "another thread\nanother thread\nthe end\n"


def test_litert_writes_the_notice() -> None:
    """Otherwise nothing would have to be removed."""
    loud = (
        f"from ai_edge_litert.interpreter import Interpreter; Interpreter({str(TINY)!r}).allocate_tensors()"
    )
    assert "Created TensorFlow Lite XNNPACK delegate" in standard_error_of(loud)


def test_a_network_opens_with_standard_error_closed() -> None:
    script = "import sys; from pathlib import Path; from mistify.litert import open_interpreter\n"
    script += "import os; os.close(2); open_interpreter(Path(sys.argv[1]), 1).allocate_tensors()"
    assert standard_error_of(script) == ""


@pytest.mark.parametrize("network", [TINY, TINY.read_bytes()])
def test_a_network_is_opened_from_its_path_or_its_content(network: Path | bytes) -> None:
    interpreter = open_interpreter(network, 1)
    interpreter.allocate_tensors()
    (entry,) = interpreter.get_input_details()
    interpreter.set_tensor(entry["index"], np.zeros(entry["shape"], entry["dtype"]))
    interpreter.invoke()


def test_an_invalid_network_is_refused() -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match=r"model"):
        open_interpreter(b"no network at all", 1)
    assert len(os.listdir("/proc/self/fd")) == descriptors


@pytest.mark.parametrize("threads", [0, 1025, 100_000])
def test_numbers_of_threads_that_would_crash_the_process_are_refused(threads: int) -> None:
    with pytest.raises(ValueError, match=f"{threads} threads cannot be started; expected 1 to 1024"):
        open_interpreter(TINY, threads)
    with pytest.raises(ValueError, match="expected 1 to 1024"):
        open_compiled(TINY.read_bytes(), threads)
