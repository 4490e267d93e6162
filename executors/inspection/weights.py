"""HDF5 files: checks of their declared contents, based only on their headers."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from executors.inspection.errors import invalid, too_large
from executors.inspection.limits import MIB, Limits

_NO_MODEL = "a damaged or truncated HDF5 file"
_REFERENCES = "weights in the file itself"

#: gzip, shuffle, checksum, szip and lzf, which are part of h5py. Other filters are separate programs.
_FILTERS = frozenset({1, 2, 3, 4, 32000})


def stored_weights(path: Path, content: Path | IO[bytes], limits: Limits) -> int:
    """Return the number of weights in an HDF5 file, after checking that they can be read.

    Args:
        path: The model named in errors.
        content: The file, if it is not the model itself.

    Raises:
        MistifyError: INVALID_MODEL if it is not an HDF5 file, has soft or external links, or has arrays that
            exceed the limits or are larger than their stored data.
    """
    import h5py  # noqa: PLC0415 (10 MB, which a server needs only for a new model)

    weights = taken = 0
    try:
        with h5py.File(content, "r") as file:
            for name, dataset in _datasets(path, file, limits):
                weights += dataset.size or 0
                taken += _checked_bytes(path, name, dataset, limits)
                if taken > limits.total_bytes:
                    raise too_large(path, f"arrays of {taken:,} bytes", limits.total_bytes)
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        # h5py raises these for damaged files.
        raise invalid(path, _NO_MODEL) from error
    return weights


def model_config(path: Path) -> bytes | str | None:
    """Return the configuration in an HDF5 file accepted by `stored_weights`; None if it has none."""
    import h5py  # noqa: PLC0415 (10 MB, which a server needs only for a new model)

    try:
        with h5py.File(path, "r") as file:
            text = file.attrs.get("model_config")
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise invalid(path, _NO_MODEL) from error
    return text if isinstance(text, bytes | str) else None


def _datasets(path: Path, file: Any, limits: Limits) -> Iterator[tuple[str, Any]]:
    """Yield every array of a file once; refuse soft and external links."""
    import h5py  # noqa: PLC0415 (10 MB, which a server needs only for a new model)

    seen = set()
    left = [file]
    while left:
        group = left.pop()
        for name in group:
            place = f"{group.name.rstrip('/')}/{name}"
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise invalid(path, f"a soft or external link at {place[:100]}", _REFERENCES)
            member = group[name]
            address = h5py.h5o.get_info(member.id).addr
            if address in seen:
                continue
            seen.add(address)
            if len(seen) > limits.entries:
                raise too_large(path, f"more than {limits.entries:,} arrays and groups", limits.entries)
            if isinstance(member, h5py.Group):
                left.append(member)
            elif isinstance(member, h5py.Dataset):
                yield place[:100], member


def _checked_bytes(path: Path, name: str, dataset: Any, limits: Limits) -> int:
    """Return the bytes of an array."""
    if dataset.is_virtual or dataset.external:
        raise invalid(path, f"array {name} stored in another file", _REFERENCES)
    if dataset.dtype.hasobject:
        raise invalid(path, f"array {name} of type {dataset.dtype}", "arrays of numbers")
    settings = dataset.id.get_create_plist()
    filters = {settings.get_filter(index)[0] for index in range(settings.get_nfilters())}
    if filters - _FILTERS:
        raise invalid(path, f"array {name} under an unknown compression", "gzip or none")
    size = (dataset.size or 0) * dataset.dtype.itemsize
    if size > MIB and size > limits.expansion * dataset.id.get_storage_size():
        stored = dataset.id.get_storage_size()
        raise invalid(
            path, f"array {name} of {size:,} bytes, of which {stored:,} are stored", "arrays stored in full"
        )
    return int(size)
