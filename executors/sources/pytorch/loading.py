"""Loading of PyTorch networks: exported in a process of their own, then read like ONNX files."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from executors.inspection.errors import invalid
from executors.inspection.limits import GIB
from executors.sources.onnx.loading import OnnxNetwork, read_onnx
from executors.sources.pytorch.exporting import MEMORY, SECONDS, export
from mistify.errors import MistifyError
from mistify.isolation.process import DisposableProcess, ProcessEndedError


def load_pytorch(path: Path, call: str, weights: Path | None = None) -> OnnxNetwork:
    """Load the network that a function returns, as a flat functional Keras model with channels last.

    The file runs on its own: it can import installed packages, but no modules from its directory.

    Args:
        path: The Python file.
        call: The function, which returns a `torch.nn.Module` and an example input, or a tuple of these.
        weights: A file that the function takes as its argument; None if it takes none.

    Raises:
        MistifyError: INVALID_MODEL, PyTorch or onnx is not installed, the call fails or takes too long or too
            much memory, or the network cannot be exported to ONNX, or translated from it.
    """
    directory, process = Path(tempfile.mkdtemp()), DisposableProcess()
    exported = directory / f"{path.stem}.onnx"
    try:
        file = None if weights is None else str(weights)
        process.call(export, str(path), call, file, str(exported))
        return read_onnx(exported.parent)
    except (ProcessEndedError, MemoryError) as error:
        raise invalid(
            path, f"a function {call} that cannot be called: {error}",
            f"a network within {SECONDS} s and {MEMORY // GIB} GiB", "make it simpler",
        ) from error  # fmt: skip
    except MistifyError as error:
        raise _of_file(error, exported.parent, path) from error
    finally:
        process.close()
        shutil.rmtree(directory)


def _of_file(error: MistifyError, directory: Path, path: Path) -> MistifyError:
    """Return an error about the exported file as one about the user's file."""
    problems = (
        replace(problem, place=problem.place.replace(str(directory), str(path))) for problem in error.problems
    )
    return MistifyError(error.code, error.message.replace(str(directory), str(path)), problems)
