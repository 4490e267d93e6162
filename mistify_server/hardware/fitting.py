"""Fitting of a device's latency models to measured latencies of small networks (paper 4.1).

All parameters of a setting are fitted jointly by non-negative least squares on relative errors. Operators
inside networks have the same weight as single ones, because the predictions are for networks. The tile of
each routine is determined first, from the networks with a single operator of that routine.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mistify.costs.devices import DeviceTable, OperatorTiming, Setting
from mistify.costs.latency import (
    LatencyModel,
    RoutineModel,
    Tile,
    is_product,
    is_tiled,
    routine_of,
    terms_between,
    terms_of,
)
from mistify.costs.operators import Operation, OperatorKind
from mistify.costs.profiles import MeasuredProfile, device_profile
from mistify.errors import ErrorCode, MistifyError, Problem
from mistify.wording import counted

Array: TypeAlias = npt.NDArray[np.float64]
Tiles: TypeAlias = Mapping[str, Tile]

#: Candidate tiles: those of matrix products in XNNPACK and similar libraries, alone and combined with a tile
#: of half the columns.
_ROWS: Final = (1, 4, 5, 6, 7, 8, 12, 16)
_COLUMNS: Final = (4, 8, 16, 32)
_DEPTHS: Final = (1, 4, 8)
_UNTILED: Final = Tile(1, 16, 1)

_BETWEEN: Final = len(terms_between(()))

_FOLDS: Final = 5

#: Maximum iterations per fitted parameter.
_ITERATIONS: Final = 30

#: Operators that occur only in integer networks.
_INTEGER: Final = frozenset({OperatorKind.QUANTIZE, OperatorKind.DEQUANTIZE})


def fitted(table: DeviceTable) -> tuple[list[MeasuredProfile], list[Setting]]:
    """Fit the profiles of a device, and measure their prediction errors.

    Returns:
        A profile for each precision and number of threads, and their settings.

    Raises:
        MistifyError: INVALID_CONFIG, a kind of operator was not measured at one of the settings.
    """
    settings = sorted({(reading.integer, reading.threads) for reading in table.readings})
    watts = {(power.integer, power.threads): power.watts for power in table.powers}
    _require_all_routines(table, settings)
    profiles, qualities = [], []
    for integer, threads in settings:
        readings = [r for r in table.readings if (r.integer, r.threads) == (integer, threads)]
        fit = _Fit(readings)
        drawn = watts.get((integer, threads))
        profiles.append(device_profile(table.name, fit.model(), integer, threads, drawn))
        errors = fit.cross_validated_errors()
        median, p90 = (float(np.quantile(errors, share)) for share in (0.5, 0.9))
        qualities.append(Setting(integer, threads, median, p90, drawn))
    return profiles, qualities


def _require_all_routines(table: DeviceTable, settings: Sequence[tuple[bool, int]]) -> None:
    """Reject a table without data for some kinds of operators."""
    problems = []
    for integer, threads in settings or [(False, 1)]:
        done = {
            routine_of(operation)
            for reading in table.readings
            if (reading.integer, reading.threads) == (integer, threads)
            for operation in reading.operations
        }
        missing = sorted(_needed(integer) - done)
        if missing:
            place = f"readings of {'int8' if integer else 'float32'} on {counted(threads, 'thread')}"
            problems.append(
                Problem(place, f"none of {', '.join(missing)}", "some of each", "measure the device again")
            )
    counts = sorted({threads for _, threads in settings})
    for integer, threads in product((False, True), counts):
        if (integer, threads) not in settings:
            missed = f"none of {'int8' if integer else 'float32'} on {counted(threads, 'thread')}"
            problems.append(Problem("readings", missed, "some", "measure the device again"))
    if problems:
        message = f"the table of {table.name!r} was not registered"
        raise MistifyError(ErrorCode.INVALID_CONFIG, message, problems)


def _needed(integer: bool) -> set[str]:
    """Return the routines needed for all kinds of operators."""
    kinds = [kind for kind in OperatorKind if integer or kind not in _INTEGER]
    shapes = [Operation(kind, *shape) for kind in kinds for shape in ((1, 2, 2), (2, 2, 2), (2, 2, 2, 9))]
    return {routine_of(operation) for operation in shapes}


class _Fit:
    """Fit of the readings of one setting.

    Args:
        readings: The readings of one setting.
    """

    def __init__(self, readings: Sequence[OperatorTiming]) -> None:
        self._readings = readings
        self._tiles = {routine: self._best_tile(routine) for routine in sorted(set(_routines(readings)))}
        self._places: dict[str, slice] = {}
        self._terms = _rows(readings, self._tiles, self._places)
        self._taken = _microseconds(readings)
        self._weights = np.array([float(len(reading.operations)) for reading in readings])

    def model(self) -> LatencyModel:
        """Return the model fitted to all readings."""
        figures = _solved(self._terms, self._taken, self._weights)
        return LatencyModel(
            start=figures[0],
            between=tuple(figures[1 : 1 + _BETWEEN].tolist()),
            routines={
                routine: RoutineModel(tile=tile, figures=tuple(figures[self._places[routine]].tolist()))
                for routine, tile in self._tiles.items()
            },
        )

    def cross_validated_errors(self) -> Array:
        """Return the cross-validated relative errors for networks with several operators."""
        order = np.random.default_rng(0).permutation(len(self._readings))
        predicted = np.zeros(len(order))
        for fold in range(_FOLDS):
            left_out = order[fold::_FOLDS]
            rest = np.setdiff1d(order, left_out)
            figures = _solved(self._terms[rest], self._taken[rest], self._weights[rest])
            predicted[left_out] = self._terms[left_out] @ figures
        errors = np.abs(predicted / self._taken - 1)
        several = np.array([len(reading.operations) > 1 for reading in self._readings])
        selected: Array = errors[several] if several.any() else errors
        return selected

    def _best_tile(self, routine: str) -> Tile:
        """Return the best tile for a routine's single-operator networks."""
        own = [r for r in self._readings if [routine_of(o) for o in r.operations] == [routine]]
        tiles = list(_tiles(routine, own))
        if len(tiles) == 1:
            return tiles[0]
        taken = _microseconds(own)
        return min(tiles, key=lambda tile: _misfit(_rows(own, {routine: tile}, {}), taken))


def _tiles(routine: str, own: Sequence[OperatorTiming]) -> Iterator[Tile]:
    """Yield the candidate tiles of a routine."""
    if not own or not is_tiled(routine):
        yield _UNTILED
        return
    rows = _ROWS if is_product(routine) else (1,)
    depths = _DEPTHS if is_product(routine) and own[0].integer else (1,)
    for row, column, depth in product(rows, _COLUMNS, depths):
        narrow = (0, column // 2) if is_product(routine) else (0,)
        yield from (Tile(row, column, depth, columns) for columns in narrow)


def _routines(readings: Iterable[OperatorTiming]) -> Iterator[str]:
    return (routine_of(operation) for reading in readings for operation in reading.operations)


def _rows(readings: Sequence[OperatorTiming], tiles: Tiles, places: dict[str, slice]) -> Array:
    """Return the terms of each reading, [readings, terms]: start, between operations, and per operation.

    Args:
        tiles: Routine -> tile.
        places: Output: routine -> columns of its terms.
    """
    width = 1 + _BETWEEN
    for routine in tiles:
        example = next(o for r in readings for o in r.operations if routine_of(o) == routine)
        count = len(terms_of(example, tiles[routine]))
        places[routine] = slice(width, width + count)
        width += count
    rows = np.zeros((len(readings), width))
    rows[:, 0] = 1.0
    for row, reading in zip(rows, readings, strict=True):
        row[1 : 1 + _BETWEEN] = terms_between(reading.operations)
        for operation in reading.operations:
            routine = routine_of(operation)
            row[places[routine]] += terms_of(operation, tiles[routine])
    return rows


def _microseconds(readings: Sequence[OperatorTiming]) -> Array:
    return np.array([1e3 * reading.median_ms for reading in readings])


def _solved(terms: Array, taken: Array, weights: Array) -> Array:
    """Solve for non-negative parameters by weighted least squares of relative errors."""
    from scipy.optimize import nnls  # noqa: PLC0415 (half a second to import)

    share = np.sqrt(weights)
    relative = terms * (share / taken)[:, None]
    scale = relative.max(axis=0)
    scale[scale == 0] = 1.0
    figures, _ = nnls(relative / scale, share, maxiter=_ITERATIONS * terms.shape[1])
    solved: Array = figures / scale
    return solved


def _misfit(terms: Array, taken: Array) -> Any:
    """Return the mean squared relative error, with each error clipped at 1."""
    errors = np.abs(terms @ _solved(terms, taken, np.ones(len(taken))) / taken - 1)
    return np.mean(np.minimum(errors, 1.0) ** 2)
