"""Train and test data, in memory."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from mistify.errors import ErrorCode, MistifyError, Problem

BUILTIN = "builtin:"


@dataclass(frozen=True)
class Dataset:
    """Examples and their classes.

    Attributes:
        x: Inputs [examples, ...], in the scale that the model expects; integers are cast to float32.
        y: Class of each example [examples], int64.
    """

    x: npt.NDArray[np.generic]
    y: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    def subset(self, indices: npt.NDArray[np.int64]) -> "Dataset":
        """The examples at these indices."""
        return Dataset(self.x[indices], self.y[indices])


def load_dataset(source: str) -> Dataset:
    """Read a `.npz` file with arrays `x` and `y`, or a built-in dataset.

    Raises:
        MistifyError: INVALID_DATASET, naming the file, what was found and what was expected.
    """
    if source.startswith(BUILTIN):
        return _digits(source.removeprefix(BUILTIN))
    arrays = _arrays(source)
    missing = [name for name in ("x", "y") if name not in arrays]
    if missing:
        given = f"no array {' and none '.join(missing)}, but {', '.join(arrays) or 'none at all'}"
        raise _invalid(Problem(source, given, "arrays x and y", "write them by np.savez(FILE, x=..., y=...)"))
    x, y = arrays["x"], arrays["y"]
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    problems = list(_unusable(source, x, y))
    if problems:
        raise _invalid(*problems)
    return Dataset(x, y.astype(np.int64))


def _arrays(source: str) -> dict[str, npt.NDArray[np.generic]]:
    """The arrays `x` and `y` of a file, and the names of the others with nothing in them."""
    try:
        archive = np.load(Path(source), allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array")
        with archive:
            return {name: archive[name] if name in ("x", "y") else np.empty(0) for name in archive.files}
    except (OSError, ValueError, EOFError, MemoryError, BadZipFile, zlib.error) as error:
        given = f"a file that cannot be read ({type(error).__name__}: {error})"
        if isinstance(error, ValueError) and "pickle" in str(error):
            given = "no arrays, or pickled objects in them"  # NumPy's own message advises to load them
        raise _invalid(
            Problem(source, given, "an .npz file", "write it by np.savez(FILE, x=..., y=...)")
        ) from error


def _unusable(source: str, x: npt.NDArray[np.generic], y: npt.NDArray[np.generic]) -> Iterator[Problem]:
    """What no model could learn from."""
    if x.ndim == 0 or y.ndim != 1 or len(x) != len(y) or len(y) == 0:
        given = f"x of shape {x.shape} and y of shape {y.shape}"
        yield Problem(source, given, "one class in y for each example in x", "check the arrays")
    if not np.issubdtype(y.dtype, np.integer):
        yield Problem(source, f"y of type {y.dtype}", "integer classes", "cast y to int64")
    if not (np.issubdtype(x.dtype, np.integer) or np.issubdtype(x.dtype, np.floating)):
        yield Problem(source, f"x of type {x.dtype}", "integers or floats", "cast x to float32")
    elif not np.isfinite(x).all():
        example = int(np.argwhere(~np.isfinite(np.atleast_1d(x)))[0][0])
        yield Problem(
            source, f"NaN or infinity in x[{example}]", "finite inputs", "drop or repair the example"
        )


def check_dataset(
    data: Dataset, source: str, input_shape: tuple[int | None, ...], classes: int
) -> list[Problem]:
    """Whether the data fit a model that takes `input_shape` (batch first) and tells `classes` apart."""
    problems = []
    if len(data.x.shape) != len(input_shape) or any(
        wanted not in (None, given) for wanted, given in zip(input_shape[1:], data.x.shape[1:], strict=False)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in input_shape[1:])
        problems.append(
            Problem(
                source,
                f"x of shape {data.x.shape}",
                f"[examples, {wanted}]",
                "reshape x to what the model takes",
            )
        )
    low, high = int(data.y.min()), int(data.y.max())
    if low < 0 or high >= classes:
        row = int(np.flatnonzero((data.y < 0) | (data.y >= classes))[0])
        problems.append(
            Problem(
                source,
                f"y[{row}] = {int(data.y[row])}",
                f"classes 0 to {classes - 1}",
                "relabel the examples",
            )
        )
    return problems


def _invalid(*problems: Problem) -> MistifyError:
    return MistifyError(ErrorCode.INVALID_DATASET, f"{problems[0].place} cannot be used", problems)


def _digits(name: str) -> Dataset:
    """Scikit-learn's handwritten digits, 8 x 8 pixels scaled to 0..1, split 4 to 1."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - half a second, for the demo alone

    digits = load_digits()
    x = (digits.images[..., None] / 16.0).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    held_out = len(x) // 5
    parts = {"digits-train": order[held_out:], "digits-test": order[:held_out]}
    if name not in parts:
        raise _invalid(Problem(f"{BUILTIN}{name}", name, f"one of {', '.join(parts)}", "correct the name"))
    return Dataset(x[parts[name]], digits.target[parts[name]].astype(np.int64))
