"""Private parts of Keras are used in one module, and the installed Keras has them all."""

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
    """The private attributes that code reads of anything but itself."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or ast.unparse(node.value) in ("self", "cls"):
            continue
        if node.attr.startswith("_") and not node.attr.endswith("__"):
            yield node.attr


def private_modules(tree: ast.AST) -> Iterator[str]:
    """What code imports or reads of the modules below `keras.src`."""
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


def test_the_installed_keras_has_all_that_is_used():
    assert missing() == []


def test_the_installed_tf_keras_has_all_that_is_used():
    import tf_keras

    inputs = tf_keras.Input((2,))
    assert missing_of_keras2(tf_keras.Model(inputs, tf_keras.layers.Dense(1)(inputs))) == []


def test_all_that_is_used_is_checked():
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


def test_an_untested_version_that_lacks_a_part_is_refused_with_its_name(monkeypatch):
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
