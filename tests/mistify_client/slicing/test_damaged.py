"""Factories whose description is damaged in any field: the user gets a typed error, or a network."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.package.factory import FACTORY
from mistify.package.manifest import Manifest
from mistify.package.records import PackagedFile
from mistify_client import load
from mistify_client.slicing.customizing import SliceRequest, customize
from tests.support.factories import make_package

#: What stands in the place of a value: other types, and numbers that are too small or too large.
WRONG = (None, True, -1, 0, 1, 2, 3, 5, 1.5, 1e9, 10**18, "x", "", [], {}, [0], [-1], ["x"], [[]], {"a": 1})

REMOVED, REPEATED = object(), object()


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys and indices of all values in JSON."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield (*place, key)
        yield from places(value[key], (*place, key))


def damaged(description: Any, place: tuple[Any, ...], wrong: Any) -> Any:
    description = copy.deepcopy(description)
    inner = description
    for key in place[:-1]:
        inner = inner[key]
    if wrong is REMOVED:
        del inner[place[-1]]
    elif wrong is REPEATED and isinstance(inner, list):
        inner.append(inner[place[-1]])
    elif wrong is REPEATED:
        inner[f"{place[-1]} "] = inner[place[-1]]
    else:
        inner[place[-1]] = wrong
    return description


def write(package, description):
    """Write a description with its digest in the manifest, as if the package had been made with it."""
    content = json.dumps(description).encode()
    (package / FACTORY).write_bytes(content)
    manifest = Manifest.load(package)
    files = {**manifest.files, FACTORY: PackagedFile.of(content)}
    manifest.model_copy(update={"files": files}).save(package)


@pytest.mark.parametrize("count", [15, pytest.param(None, marks=pytest.mark.slow)])
def test_any_damage_of_the_description_causes_only_typed_errors(tmp_path, count):
    package = make_package(tmp_path / "package")
    description = json.loads((package / FACTORY).read_bytes())
    damages = [
        damaged(description, place, wrong)
        for place in places(description)
        for wrong in (*WRONG, REMOVED, REPEATED)
    ]
    codes = set()
    for number in np.random.default_rng(0).permutation(len(damages))[:count]:
        write(package, damages[number])
        try:
            customize(package, SliceRequest("exactly:2,odd"), out=tmp_path / str(number), seconds=1e-4)
            load(package, task="exactly:2,odd")
        except MistifyError as error:
            codes.add(error.code)
    assert codes <= {
        ErrorCode.CORRUPT_PACKAGE,
        ErrorCode.STORE_VERSION,
        ErrorCode.NOT_FOUND,
        ErrorCode.INVALID_CONFIG,
    }


@pytest.mark.parametrize(
    ("place", "wrong", "message"),
    [
        (("places", "constants", 0, "tensors", 0, 1), 999, "there is no tensor 999 of graph 0"),
        (("places", "constants", 0, "tensors", 0, 0), 9, "there is no tensor 6 of graph 9"),
        (("places", "constants", 0, "axes", 0, "axis"), 7, "tensor 6 of graph 0 has no axis 7 of 24 entries"),
        (("places", "constants", 0, "axes", 0, "repeats"), 2, "has no axis 0 of 48 entries"),
        (("places", "constants", 0, "axes", 0, "group"), 2, "there is no group 2"),
        (("places", "constants"), [], "group 0 has no constant"),
        (("places", "constants", 0, "axes", 0), REPEATED, "an axis shrinks twice"),
        (("places", "activations", 0, "axis"), 9, "has no axis 9 of at least"),
        (("places", "activations", 0, "per_unit"), 10**18, "of at least"),
        (("places", "shapes"), [{"tensor": [0, 6], "index": 99, "group": 0, "per_unit": 1}], "no element 99"),
        (("places", "units"), [24], "there is no group 1"),
        (("groups",), [{"name": "inner", "units": 24}], "the places are of groups"),
        (("quality", "limits", 0), 0, "limits"),
        (("space", "tasks"), {"t": ["9"]}, r"space\.tasks\.t\[0\]"),
        (("supernet", "sha256"), 64 * "0", "supernet.tflite"),
        (("assembler", "size"), 1, "assembler.tflite"),
    ],
)
def test_a_wrong_value_is_found_and_named(tmp_path, place, wrong, message):
    package = make_package(tmp_path / "package")
    description = json.loads((package / FACTORY).read_bytes())
    write(package, damaged(description, place, wrong))
    with pytest.raises(MistifyError, match=message) as error:
        customize(package, SliceRequest("exactly:2,odd"), out=tmp_path / "out", seconds=1e-4)
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE


def test_an_assembler_for_other_units_is_found(tmp_path):
    package = make_package(tmp_path / "package")
    description = json.loads((package / FACTORY).read_bytes())
    properties = description["space"]["properties"]
    properties["which"] = [*properties["which"], "5"]
    write(package, description)
    with pytest.raises(MistifyError, match="cannot be used") as error:
        customize(package, SliceRequest("exactly:2,odd"), out=tmp_path / "out", seconds=1e-4)
    assert error.value.code is ErrorCode.CORRUPT_PACKAGE
