"""Preparations whose workers are killed, one after the other, at different points of the same preparation."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: Prepares a source whose data answer questions. A process is killed at each of the points, and the next one
#: goes on with what it has left in the store. Prints a line of JSON on each process.
KILLED = """
import json, os, signal, sys
from pathlib import Path
import tensorflow
from mistify.config.data.dataset import DataSettings
from mistify_server.store.artifacts import artifacts_of
from mistify_server.tasks.sources import DataSource, ModelSource
from mistify_server.tasks.tasks import PrepareTask, SourceTask
from mistify_server.worker.runner import TaskRunner
from tests.end_to_end.test_property_tasks import SPACE, write_data, write_network
from tests.mistify_server.digits_tasks import recipe, taught

root = Path(sys.argv[1])
SETTINGS = {"answer_steps": 16, "gate_steps": 16, "batch_size": 16, "encoder": 8, "gaters": 1}


def child(work):
    process = os.fork()
    if not process:
        work()
        os._exit(0)
    return os.waitpid(process, 0)[1]


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def prepare(store, at_step, at_file, log):
    '''Prepare, and die at a reported step, or before a file of this name takes its place.'''
    times = 0

    def watch(update):
        if update.stage == "preparing nnfactory":
            with log.open("a") as lines:
                lines.write(f"{update.step}\\n")
            if update.step == at_step:
                kill()

    def hook(event, arguments):
        nonlocal times
        if event == "os.rename" and at_file and str(arguments[0]).endswith(f"/{at_file[0]}.part"):
            times += 1
            if times == at_file[1]:
                kill()

    sys.addaudithook(hook)
    data = DataSource(
        train=str(root / "train.npz"),
        test=str(root / "test.npz"),
        settings=DataSettings(tasks=str(root / "tasks.json")),
    )
    own = {"data": data, "algorithm": "nnfactory", "settings": SETTINGS, "seed": 1}
    model = ModelSource(path=str(root / "net.keras"))
    artifacts = artifacts_of(store)
    quiet = TaskRunner(artifacts, lambda update: None)
    source = quiet.run(SourceTask(recipe=recipe(model, **own), exceed={}))
    task = PrepareTask(recipe=taught(source.teacher, model=model, **own), least={})
    result = TaskRunner(artifacts, watch).run(task)
    content = artifacts.path(result.prepared).read_bytes()
    (store / "content").write_bytes(content)


def made():
    write_network(root / "net.keras")
    write_data(root / "train.npz", 300, 0)
    write_data(root / "test.npz", 100, 1)
    (root / "tasks.json").write_text(json.dumps(SPACE))


assert child(made) == 0
for number, (store, at_step, at_file) in enumerate(json.loads(sys.argv[2])):
    (root / store).mkdir(exist_ok=True)
    log = root / f"log-{number}"
    log.touch()
    status = child(lambda: prepare(root / store, at_step, at_file, log))
    parts = sorted(path.name for path in (root / store).glob("artifacts/preparations/*/*"))
    print(json.dumps({"status": status, "steps": [*map(int, log.read_text().split())], "parts": parts}))
"""

SIGKILL = 9

#: Where each process is killed: at a step, or when it replaces a file for the n-th time.
POINTS = (
    (2, None),  # in the first part of the first stage
    (None, ("answers", 1)),  # while it keeps this part
    (None, ("answers", 3)),  # within the stage
    (16, None),  # with the last step of the stage
    (None, ("gates", 1)),  # within the first part of the second stage
    (32, None),  # with the last step of all
    (None, ("supernet", 1)),  # after scoring the tasks
    (None, (".made", 1)),  # when everything is there
)


@pytest.mark.slow
def test_a_preparation_that_is_killed_anywhere_ends_at_the_same_supernet(tmp_path: Path) -> None:
    runs = [("whole", None, None), *(("killed", *point) for point in POINTS), ("killed", None, None)]
    command = [sys.executable, "-c", KILLED, str(tmp_path), json.dumps(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    whole, *killed, last = map(json.loads, done.stdout.splitlines())
    assert whole["steps"] == [*range(2, 33, 2)]
    assert [one["status"] for one in killed] == [SIGKILL] * len(POINTS)
    # Each goes on after the last part that was kept, and trains none of the earlier steps again.
    assert [one["steps"] for one in killed] == [
        [2],
        [2],
        [2, 4, 6],
        [6, 8, 10, 12, 14, 16],
        [16, 18],
        [*range(18, 33, 2)],
        [32],
        [],
    ]
    assert last["status"] == 0
    assert last["steps"] == []
    assert last["parts"] == [".made"]
    contents = [(tmp_path / store / "content").read_bytes() for store in ("whole", "killed")]
    assert contents[0] == contents[1]
