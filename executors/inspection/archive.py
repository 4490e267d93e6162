"""`.keras` files: archives with a configuration and weights."""

import shutil
import stat
import struct
import zipfile
import zlib
from pathlib import Path

from executors.inspection.config import ClassPolicy, check_config, parse_config
from executors.inspection.errors import invalid, too_large
from executors.inspection.limits import MIB, Limits
from executors.inspection.weights import stored_weights
from mistify.files.places import temporary_file
from mistify.files.writing import NO_ROOM

CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
_MAGIC = b"PK\x03\x04"
_PACKING = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, NotImplementedError)


def inspect_archive(path: Path, policy: ClassPolicy) -> int:
    """Return the number of weights in a `.keras` file.

    Raises:
        MistifyError: INVALID_MODEL if the file is not safe to load.
        OSError: There is too little space to unpack the file.
    """
    with path.open("rb") as file:
        start = file.read(len(_MAGIC))
    if start != _MAGIC:
        raise invalid(path, f"a file that starts with {start!r}, unlike any .keras file")
    with temporary_file() as weights:
        try:
            with zipfile.ZipFile(path) as archive:
                _check_members(path, archive.infolist(), policy.limits)
                text = archive.read(CONFIG)
                with archive.open(WEIGHTS) as packed:
                    shutil.copyfileobj(packed, weights)
                weights.flush()
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise
            raise invalid(path, "a damaged or truncated archive") from error
        stored = stored_weights(path, weights, policy.limits)
    check_config(path, parse_config(path, text, policy.limits), stored, policy)
    return stored


def _check_members(path: Path, members: list[zipfile.ZipInfo], limits: Limits) -> None:
    if len(members) > limits.entries:
        raise too_large(path, f"an archive of {len(members):,} members", limits.entries)
    names = [member.filename for member in members]
    for name in (CONFIG, WEIGHTS):
        if names.count(name) != 1:
            raise invalid(path, f"an archive with {names.count(name)} members {name}", "one")
    total = 0
    for member in members:
        _check_member(path, member, limits)
        total += member.file_size
    if total > limits.total_bytes:
        raise too_large(path, f"an archive of {total:,} bytes", limits.total_bytes)
    config = members[names.index(CONFIG)]
    if config.file_size > limits.config_bytes:
        raise too_large(path, f"a configuration of {config.file_size:,} bytes", limits.config_bytes)


def _check_member(path: Path, member: zipfile.ZipInfo, limits: Limits) -> None:
    """Refuse a member that is not a regular file inside the archive, or has an unusual compression."""
    name = member.filename
    if name.startswith("/") or "\\" in name or ":" in name or ".." in name.split("/"):
        raise invalid(path, f"a member named {name[:100]!r}", "names inside the archive")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise invalid(path, f"the member {name[:100]} that is a link or a device", "files and directories")
    if member.flag_bits & _ENCRYPTED or member.compress_type not in _PACKING:
        raise invalid(
            path, f"the member {name[:100]} with an unknown compression", "deflated or stored members"
        )
    if member.file_size > max(MIB, limits.expansion * member.compress_size):
        raise invalid(
            path,
            f"the member {name[:100]}, expanding from {member.compress_size:,} to {member.file_size:,} bytes",
            f"at most {limits.expansion} times its packed size",
        )
