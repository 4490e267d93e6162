"""Whatever is in the files of a package, it is used, or refused with a typed error.

Networks are not changed without their digests, because they are only read once these are right.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mistify.ed25519 import PrivateKey
from mistify.errors import MistifyError
from mistify.package.manifest import MANIFEST, Manifest
from mistify.package.opened import Package
from mistify.package.records import describe_file
from mistify_client import load
from mistify_client.lending.packages import LentPackages
from mistify_client.monitor.config import load_config
from mistify_client.monitor.daemon import Monitor
from mistify_client.monitor.state.journal import Journal
from mistify_client.monitor.state.state import MonitorState
from tests.support.efforts import with_effort
from tests.support.paths import DATA
from tests.support.random_json import changed, inside
from tests.support.signed_packages import sign_package

KEY: Final = PrivateKey.generate()

PACKAGES: Final = ("blocks", "exits", "factory", "trainable", "adaptable")

#: Descriptions of packages, which contain no networks: package -> name -> content.
DESCRIBED: Final[Mapping[str, Mapping[str, Any]]] = {
    name: {path.name: json.loads(path.read_text()) for path in (DATA / name).glob("*.json")}
    for name in PACKAGES
}

VALUES = st.sampled_from(
    [
        *(
            None,
            True,
            False,
            "",
            "x" * 300,
            "\0",
            "../x",
            "float32",
            "int8",
            "object",
            "serve.tflite",
            "0" * 64,
        ),
        *(0, 1, -1, 3, 2**31, 2**62, 2**64, 0.5, -1.0, 1e308, 5e-324, float("nan"), float("inf")),
        *([], {}, [[]], [1], {"": ""}),
    ]
)
KEYS = st.sampled_from(
    sorted(
        {
            str(key)
            for files in DESCRIBED.values()
            for content in files.values()
            for place in inside(content)
            for key in place
        }
    )
)

#: Changes the files in a directory.
Damage = Callable[[Path], object]


def described(name: str, content: Any) -> Damage:
    """Return a change of a description, with its right digest, signed by a trusted server."""

    def damage(package: Path) -> None:
        path = package / name
        path.write_text(json.dumps(content))
        if name != MANIFEST:
            manifest = Manifest.load(package)
            files = {**manifest.files, name: describe_file(path)}
            manifest.model_copy(update={"files": files}).save(package)
        sign_package(package, KEY)

    return damage


@st.composite
def descriptions(draw: st.DrawFn, package: str) -> Damage:
    name = draw(st.sampled_from(sorted(DESCRIBED[package])))
    return described(name, draw(changed(DESCRIBED[package][name], VALUES, KEYS)))


@st.composite
def raw_damages(draw: st.DrawFn, package: str) -> Damage:
    """Return a change that no server has signed: a flipped bit, a cut file, or two files that are swapped."""
    names = st.sampled_from(sorted(path.name for path in (DATA / package).iterdir()))
    name, other = draw(names), draw(names)
    original = (DATA / package / name).read_bytes()
    place, kind = draw(st.integers(0, len(original) - 1)), draw(st.sampled_from(["flip", "cut", "swap"]))

    def damage(directory: Path) -> None:
        content = bytearray(original)
        if kind == "flip":
            content[place] ^= 1
        elif kind == "cut":
            del content[place:]
        else:
            (directory / name).write_bytes((directory / other).read_bytes())
        (directory / (other if kind == "swap" else name)).write_bytes(content)

    return damage


def use(package: Path, inputs: Mapping[str, Any]) -> None:
    with suppress(MistifyError):
        load(package, trusted=[KEY.public])(inputs)


def lend(package: Path, _inputs: Mapping[str, Any]) -> None:
    with suppress(MistifyError):
        opened = Package.open(package)
        lent = LentPackages([opened])
        assert lent.largest_message > 0
        assert opened.blocks is not None
        digests = [block.content.sha256 for block in opened.blocks.network_of(opened.blocks.served)]
        network = lent.network(digests, range(len(digests)))
        assert all(network.sent_bytes(cut) >= 0 for cut in range(len(digests) + 1))


def watch(package: Path, _inputs: Mapping[str, Any]) -> None:
    config = package.with_name("monitor.toml")
    config.write_text('[targets]\nlatency = "20ms"\n')
    with suppress(MistifyError):
        state = MonitorState.of(package)
        with state.held():
            monitor = Monitor(package, lambda: load_config(config, None), Journal(state.log, echo=None))
            monitor.step()
            monitor.close()


def example_inputs(package: Path) -> dict[str, Any]:
    infos = Manifest.load(package).inputs
    return {each.name: np.zeros([max(1, size) for size in each.shape], each.dtype) for each in infos}


@with_effort
def test_random_packages_are_used_or_refused(tmp_path: Path, effort: settings) -> None:
    inputs = {name: example_inputs(DATA / name) for name in PACKAGES}

    @effort
    @given(
        st.sampled_from(PACKAGES).flatmap(
            lambda name: st.tuples(st.just(name), descriptions(name) | raw_damages(name))
        )
    )
    def check(case: tuple[str, Damage]) -> None:
        name, damage = case
        for action in (use, lend, watch):
            package = tmp_path / "device" / "package"
            shutil.copytree(DATA / name, package)
            sign_package(package, KEY)
            damage(package)
            action(package, inputs[name])
            shutil.rmtree(package.parent)

    check()
