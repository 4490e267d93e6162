"""A wheel of the client alone, made from the files of this installation."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mistify.errors import ErrorCode, MistifyError

#: The distribution of which the client is a part.
DISTRIBUTION: Final = "mistify-porting"

#: The packages that devices and command lines need.
_PACKAGES: Final = ("mistify", "mistify_client")

#: The extra of the distribution whose requirements the wheel always has, and the extras that it keeps.
_REQUIRED_EXTRA: Final = "client"
_KEPT_EXTRAS: Final = ("images", "mlflow", "onnx", "plots", "signatures")

#: Label that tells this wheel from a whole distribution of the same version; no public index accepts it.
_LABEL: Final = "client"

#: The time of all entries, so that equal files make equal wheels.
_TIME: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Wheel:
    """A wheel: its file name and its content."""

    name: str
    content: bytes

    @property
    def sha256(self) -> str:
        """The SHA-256 digest of the content in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()


@cache
def client_wheel() -> Wheel:
    """Return a wheel with the client and its vocabulary, without the server, executors and TensorFlow.

    It replaces a whole installation of the same name in an environment, and has the same version with the
    label `client`.

    Raises:
        MistifyError: NOT_FOUND, the client is not installed here.
    """
    installed = distribution(DISTRIBUTION)
    version = f"{installed.version}+{_LABEL}"
    stem = f"{DISTRIBUTION.replace('-', '_')}-{version}"
    files = dict(_package_files())
    files |= {f"{stem}.dist-info/{name}": content for name, content in _metadata(installed, version)}
    record = f"{stem}.dist-info/RECORD"
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return Wheel(f"{stem}-py3-none-any.whl", written.getvalue())


def _package_files() -> Iterator[tuple[str, bytes]]:
    """Yield the path in the wheel and the content of each file of the packages, without importing them."""
    for package in _PACKAGES:
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise MistifyError(
                ErrorCode.NOT_FOUND,
                f"the package {package} is not installed on the server; install {DISTRIBUTION}[server] there",
            )
        directory = Path(spec.submodule_search_locations[0])
        for path in sorted(directory.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield f"{package}/{path.relative_to(directory).as_posix()}", path.read_bytes()


def _metadata(installed: Distribution, version: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the wheel's `.dist-info`, except the record."""
    about = installed.metadata
    lines = ["Metadata-Version: 2.1", f"Name: {DISTRIBUTION}", f"Version: {version}"]
    lines += [f"{key}: {about[key]}" for key in ("Summary", "Requires-Python") if key in about]
    lines += [f"Provides-Extra: {extra}" for extra in (_REQUIRED_EXTRA, *_KEPT_EXTRAS)]
    lines += [f"Requires-Dist: {each}" for each in _requirements(installed.requires or [])]
    yield "METADATA", "\n".join([*lines, ""]).encode()
    wheel = ["Wheel-Version: 1.0", "Generator: mistify", "Root-Is-Purelib: true", "Tag: py3-none-any", ""]
    yield "WHEEL", "\n".join(wheel).encode()
    yield "entry_points.txt", _entry_points(installed).encode()
    licence = installed.read_text("licenses/LICENSE")
    if licence is not None:
        yield "licenses/LICENSE", licence.encode()


def _requirements(requires: list[str]) -> Iterator[str]:
    """Yield the requirements of the client, without those of other extras."""
    for requirement in requires:
        needed, _, marker = (part.strip() for part in requirement.partition(";"))
        extra = marker.removeprefix("extra == ").strip("\"'")
        if extra in ("", _REQUIRED_EXTRA):
            yield needed
        elif extra in _KEPT_EXTRAS:
            yield requirement


def _entry_points(installed: Distribution) -> str:
    """Return the commands and plug-ins of the packages in the format of `entry_points.txt`."""
    groups: dict[str, list[str]] = {}
    for point in installed.entry_points:
        if point.module.partition(".")[0] in _PACKAGES:
            groups.setdefault(point.group, []).append(f"{point.name} = {point.value}")
    return "".join(f"[{group}]\n" + "".join(f"{line}\n" for line in lines) for group, lines in groups.items())


def _digest(content: bytes) -> str:
    """Return a digest as files of wheels record it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
