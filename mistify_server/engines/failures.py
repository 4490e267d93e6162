"""Error messages for tasks with crashed workers: the cause, the part of the config, and advice."""

import signal
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, Problem
from mistify.wording import counted
from mistify_server.engines.supervision import WorkerCrashed, WorkerDied
from mistify_server.tasks.messages import OUT_OF_MEMORY
from mistify_server.tasks.results import TaskFailure
from mistify_server.tasks.sources import ModelSource
from mistify_server.tasks.tasks import (
    AdaptTask,
    BranchTask,
    InspectTask,
    PackageTask,
    PrepareTask,
    ReferenceTask,
    SourceTask,
    Task,
)

#: Signals with which native code aborts its own process.
_OF_ITS_OWN: Final = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS})

_MEMORY: Final = (
    "free some memory, start the server with fewer --slots, or set a smaller batch_size in algorithm.config"
)


def ended_natively(death: WorkerDied) -> bool:
    """Check whether native code, such as TensorFlow's, crashed the worker."""
    return isinstance(death, WorkerCrashed) and -(death.exit_code or 0) in _OF_ITS_OWN


def failure_of(
    task: Task, death: WorkerDied, attempts: int, worker: str, *, loading: bool, onednn: bool
) -> TaskFailure:
    """Return the failure of a task after its workers died.

    Args:
        death: The death of the last worker.
        attempts: Number of attempts.
        worker: Name of the last worker and its log; empty if none has started.
        loading: Whether the worker died while loading a model that no worker has loaded before.
        onednn: Whether TensorFlow ran with its oneDNN optimizations.
    """
    cause, advice = _cause(death, onednn=onednn), _advice(death)
    details = f"; see the server's log {worker}.log for details" if worker else ""
    message = f"{_doing(task)} failed {counted(attempts, 'time')}: {cause}; {advice}{details}"
    if not loading:
        return TaskFailure(code=death.code.name, message=message)
    problem = Problem("model", f"a model with which {cause}", "one that a worker can load", advice)
    return TaskFailure(code=ErrorCode.INVALID_MODEL.name, message=message, problems=(problem,))


def _cause(death: WorkerDied, *, onednn: bool) -> str:
    if ended_natively(death):
        also = "" if onednn else ", without its oneDNN optimizations as well"
        return f"{death}, because a failure in TensorFlow ends its process{also}"
    if _ran_out_of_memory(death):
        killed = isinstance(death, WorkerCrashed) and death.exit_code == -signal.SIGKILL
        return f"{death}, probably because it ran out of memory" if killed else "the worker ran out of memory"
    return str(death)


def _advice(death: WorkerDied) -> str:
    if ended_natively(death):
        return "replace unusual layers, or use another version of TensorFlow"
    if _ran_out_of_memory(death):
        return _MEMORY
    return "try again"


def _ran_out_of_memory(death: WorkerDied) -> bool:
    return isinstance(death, WorkerCrashed) and death.exit_code in (-signal.SIGKILL, OUT_OF_MEMORY)


def _doing(task: Task) -> str:
    """Describe a task as the beginning of a sentence."""
    match task:
        case InspectTask():
            doing = f"inspecting the model {_name(task.recipe.model)}"
        case SourceTask():
            doing = f"tuning the model {_name(task.recipe.model)}"
        case PrepareTask():
            doing = f"preparing for {task.recipe.algorithm}"
        case AdaptTask():
            doing = f"adapting the network by {task.recipe.algorithm}"
        case BranchTask():
            doing = f"adapting the branches by {task.recipe.algorithm}"
        case PackageTask():
            doing = f"packaging the goal {task.goal_id}"
        case ReferenceTask():
            doing = f"measuring the model {_name(task.recipe.model)}"
    return doing


def _name(model: ModelSource) -> str:
    return Path(model.path).name if model.path else str(model.builtin)
