"""Export of a PyTorch network to ONNX, in a process that runs a user's code and nothing else."""

import inspect
import resource
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from executors.inspection.errors import invalid
from executors.inspection.limits import GIB
from executors.sources.errors import first_line

#: CPU seconds and bytes of memory for a call and the export; the process ends after them.
SECONDS: Final = 600
MEMORY: Final = 16 * GIB

#: Version of ONNX's operators in which networks are written.
_OPSET: Final = 18

#: Examples in the batch with which a network is traced: more than one, so that the batch is not taken for an
#: axis of size 1.
_EXAMPLES: Final = 2


def export(path: str, name: str, weights: str | None, target: str) -> None:
    """Write the network that a call returns as an ONNX file with a free batch.

    Args:
        path: A Python file.
        name: A function in it, which returns a network and an example input, or a tuple of these.
        weights: The file that the function takes as its argument; None if it takes none.
        target: The ONNX file.

    Raises:
        MistifyError: INVALID_MODEL, PyTorch is not installed; or the call fails, or returns something else.
    """
    file = Path(path)
    _limit(resource.RLIMIT_CPU, SECONDS)
    _limit(resource.RLIMIT_DATA, MEMORY)
    try:
        import torch  # noqa: PLC0415 (optional, and far too large for other processes)
    except ModuleNotFoundError as error:
        raise invalid(
            file,
            "a network from PyTorch, which is not installed",
            "PyTorch",
            "run pip install torch on the server",
        ) from error
    torch.manual_seed(0)  # so that each process gets the same network
    network, examples = _network(file, _called(file, _function(file, name), weights))
    try:
        with torch.no_grad():
            outputs = _names(network.eval()(*examples))
    except Exception as error:  # a user's network may raise anything
        raise invalid(
            file, f"a network that fails for its example: {_cause(error, file)}", "an example that fits it",
            "fix the example or the network",
        ) from error  # fmt: skip
    inputs = [*inspect.signature(network.forward).parameters][: len(examples)]
    names = {"input_names": inputs, "output_names": outputs}
    try:
        _write(network, examples, target, names)
    except Exception as error:  # its operators may be unknown to PyTorch's exporters
        raise invalid(
            file,
            f"a network that PyTorch cannot export: {first_line(error)}",
            "a network for torch.onnx.export",
            "export it yourself, which shows PyTorch's full message, and name that file as the model",
        ) from error


def _function(path: Path, name: str) -> Callable[..., Any]:
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module  # dataclasses and pickled classes look their module up
    try:
        exec(compile(path.read_bytes(), str(path), "exec"), vars(module))  # noqa: S102 (with consent)
    except Exception as error:  # a user's file may raise anything
        raise invalid(
            path, f"a file that fails: {_cause(error, path)}", "a file that runs", "fix it"
        ) from error
    function = vars(module).get(name)
    if not callable(function):
        raise invalid(path, f"no function {name}", f"a function {name} in the file", "define it")
    made: Callable[..., Any] = function
    return made


def _called(path: Path, function: Callable[..., Any], weights: str | None) -> Any:
    try:
        return function() if weights is None else function(weights)
    except Exception as error:  # as above
        raise invalid(
            path, f"a call of {function.__name__} that fails: {_cause(error, path)}",
            "a function without arguments, or with the file after ?weights= as its argument", "fix it",
        ) from error  # fmt: skip


def _network(path: Path, result: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a network and its example inputs, repeated to a batch of several examples."""
    from torch import Tensor, nn  # noqa: PLC0415 (as in `export`)

    network, examples = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    examples = examples if isinstance(examples, tuple | list) else (examples,)
    expected = "a torch.nn.Module and an example input, or a tuple of example inputs"
    if not isinstance(network, nn.Module) or not all(isinstance(each, Tensor) for each in examples):
        kinds = ", ".join(type(each).__name__ for each in (network, *examples))
        raise invalid(path, f"a function that returns {kinds}", expected, "return network, example")
    if any(each.ndim == 0 for each in examples):
        raise invalid(path, "an example without axes", expected, "give it a batch as its first axis")
    return network, tuple(
        each if len(each) >= _EXAMPLES else each.repeat(_EXAMPLES, *[1] * (each.ndim - 1))
        for each in examples
    )


def _names(outputs: Any) -> list[str]:
    if isinstance(outputs, dict):
        return [str(name) for name in outputs]
    if isinstance(outputs, tuple | list):
        return [f"output_{number}" for number in range(len(outputs))]
    return ["output"]


def _write(network: Any, examples: Any, target: str, names: Mapping[str, list[str]]) -> None:
    """Export with the exporter that keeps the names of modules, or else with the newer one, if it can run."""
    import torch  # noqa: PLC0415 (as in `export`)

    axes = {name: {0: "batch"} for listed in names.values() for name in listed}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                network, examples, target, dynamo=False, opset_version=_OPSET, dynamic_axes=axes, **names
            )
        except Exception:
            if find_spec("onnxscript") is None:
                raise
            _write_newer(network, examples, target, names)


def _write_newer(network: Any, examples: Any, target: str, names: Mapping[str, list[str]]) -> None:
    """Export with the newer exporter and fold constants; its optimizer changes what networks compute."""
    import onnxscript.optimizer  # noqa: PLC0415 (optional)
    import torch  # noqa: PLC0415 (as in `export`)

    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in examples)
    program = torch.onnx.export(
        *(network, examples), dynamo=True, dynamic_shapes=shapes, verbose=False, optimize=False, **names
    )
    onnxscript.optimizer.inline(program.model)
    onnxscript.optimizer.fold_constants(program.model, onnx_shape_inference=True)
    onnxscript.optimizer.remove_unused_nodes(program.model)
    program.save(target)


def _cause(error: Exception, path: Path) -> str:
    """Return an exception with the last line of the file that led to it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    place = f" in line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}: {first_line(error)}"


def _limit(kind: int, amount: int) -> None:
    _, hard = resource.getrlimit(kind)
    with suppress(ValueError):  # the limit of the process is lower
        resource.setrlimit(kind, (amount, hard))
