"""Private parts of Keras are used in a single module, and the installed Keras has all of them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import keras
import pytest

from executors.structure import keras_internals
from executors.structure.keras_internals import check_version, missing, missing_of_keras2

ROOT = Path(__file__).parents[3]
INTERNALS = Path(keras_internals.__file__)
SOURCES = sorted(
    path
    for folder in ("executors", "mistify_server")
    for path in (ROOT / folder).rglob("*.py")
    if path != INTERNALS
)


def private_names(tree: ast.AST) -> Iterator[str]:
    """Return the private attributes that code reads from other objects than `self`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or ast.unparse(node.value) in ("self", "cls"):
            continue
        if node.attr.startswith("_") and not node.attr.endswith("__"):
            yield node.attr


def private_modules(tree: ast.AST) -> Iterator[str]:
    """Return the names that code imports or reads from modules below `keras.src`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value]
        else:
            continue
        yield from (name for name in names if name.startswith(("keras.src", "tf_keras.src")))


def strings(tree: ast.AST) -> set[str]:
    nodes = ast.walk(tree)
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


USED = set(private_names(ast.parse(INTERNALS.read_text())))


def test_the_installed_keras_has_all_private_parts_in_use():
    assert missing() == []


def test_the_installed_tf_keras_has_all_private_parts_in_use():
    import tf_keras

    inputs = tf_keras.Input((2,))
    assert missing_of_keras2(tf_keras.Model(inputs, tf_keras.layers.Dense(1)(inputs))) == []


def test_all_private_parts_in_use_are_checked():
    tree = ast.parse(INTERNALS.read_text())
    checks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in ("_missing_attributes", "missing_of_keras2")
    ]
    assert len(USED) >= 10
    assert set().union(*map(strings, checks)) >= USED


class Forgetful(keras.optimizers.SGD):
    def build(self, variables):
        super().build(variables)
        del self.momentums


def test_an_untested_version_without_a_private_part_is_refused_by_name(monkeypatch):
    check_version("3.99.0")
    monkeypatch.setattr(keras.optimizers, "SGD", Forgetful)
    monkeypatch.setitem(keras_internals._MODULES, "keras.src.ops.nn", ("NoSuchOperation",))
    monkeypatch.setitem(keras_internals._MODULES, "keras.src.no_such_module", ())
    absent = ("SGD.momentums", "keras.src.ops.nn.NoSuchOperation", "keras.src.no_such_module")
    assert sorted(missing()) == sorted(absent)
    for name in absent:
        with pytest.raises(ImportError, match=f"Keras 3.99.0 is installed.*{name}.*install Keras 3.15"):
            check_version("3.99.0")


def test_no_other_module_uses_a_private_part():
    uses = {}
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        uses[str(path.relative_to(ROOT))] = {
            *private_modules(tree),
            *USED.intersection(private_names(tree)),
            *USED.intersection(strings(tree)),
        }
    assert len(uses) > 200
    assert {path: names for path, names in uses.items() if names} == {}
