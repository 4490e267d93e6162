"""The questions about four digits as files: network, data and tasks of `configs/nnfactory_digits.json`.

`python -m benchmarks.factory.files DIRECTORY`
"""

import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from benchmarks.factory.digits import Extent, four_digits
from benchmarks.factory.networks import quad_resnet
from executors.data import Dataset

#: Their names in the directory.
NETWORK: Final = "quad-resnet.keras"
TASKS: Final = "tasks.json"


def write(directory: Path, extent: Extent) -> None:
    """Write `quad-resnet.keras`, `tasks.json` and three data sets to a directory, which is created.

    Training and validation data have a column of answers for each task. An image of the test data answers a
    single task, whose number is in the array `task`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    quad_resnet().save(directory / NETWORK)
    data = four_digits(extent=extent)
    for name, part in (("train", data.train), ("validation", data.validation)):
        np.savez_compressed(directory / f"{name}.npz", image=part.inputs["image"], answer=_answers(part))
    asked = (_answers(data.test) >= 0).argmax(axis=1)
    answers = data.test.targets["answer"].ravel().astype(np.int8)
    np.savez_compressed(
        directory / "test.npz", image=data.test.inputs["image"], answer=answers, task=asked.astype(np.int16)
    )
    (directory / TASKS).write_text(_tasks(data.train))


def _answers(data: Dataset) -> npt.NDArray[np.int8]:
    if data.answers is None:
        raise ValueError("the data have no answers")
    return data.answers


def _tasks(data: Dataset) -> str:
    """Return the space of the data's tasks as JSON, with a line for each axis, name and task."""
    described: dict[str, Any] = data.space.model_dump(by_alias=True) if data.space else {}
    parts = (
        f'  "{part}": {{\n'
        + ",\n".join(f"    {json.dumps(name)}: {json.dumps(values)}" for name, values in own.items())
        + "\n  }"
        for part, own in described.items()
    )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(argv: Sequence[str]) -> int:
    """Write the files, and return the exit code."""
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    write(parser.parse_args(argv).directory, Extent())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
