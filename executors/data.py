"""Train and test data, in memory."""

from dataclasses import dataclass
from pathlib import Path

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
    try:
        with np.load(Path(source), allow_pickle=False) as arrays:
            missing = [name for name in ("x", "y") if name not in arrays.files]
            if missing:
                raise _invalid(
                    source, f"arrays {arrays.files}", "arrays x and y", "np.savez(FILE, x=..., y=...)"
                )
            x, y = arrays["x"], arrays["y"]
    except (OSError, ValueError, EOFError) as error:
        raise _invalid(
            source, f"{type(error).__name__}: {error}", "an .npz file", "write it by np.savez"
        ) from error
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1 or len(x) != len(y) or len(y) == 0:
        raise _invalid(
            source, f"x {x.shape} and y {y.shape}", "y [examples] of the length of x", "check the arrays"
        )
    if not np.issubdtype(y.dtype, np.integer):
        raise _invalid(source, f"y of type {y.dtype}", "integer classes", "cast y to int64")
    if np.issubdtype(x.dtype, np.floating) and not np.isfinite(x).all():
        row = int(np.argwhere(~np.isfinite(x))[0][0])
        raise _invalid(source, f"NaN or infinity in x[{row}]", "finite inputs", "drop or repair the example")
    return Dataset(x, y.astype(np.int64))


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


def _invalid(source: str, given: str, expected: str, fix: str) -> MistifyError:
    problem = Problem(source, given, expected, fix)
    return MistifyError(ErrorCode.INVALID_DATASET, f"{source} cannot be used", [problem])


def _digits(name: str) -> Dataset:
    """Scikit-learn's handwritten digits, 8 x 8 pixels scaled to 0..1, split 4 to 1."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - half a second, for the demo alone

    digits = load_digits()
    x = (digits.images[..., None] / 16.0).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(x))
    held_out = len(x) // 5
    parts = {"digits-train": order[held_out:], "digits-test": order[:held_out]}
    if name not in parts:
        raise _invalid(f"{BUILTIN}{name}", name, f"one of {', '.join(parts)}", "correct the name")
    return Dataset(x[parts[name]], digits.target[parts[name]].astype(np.int64))
