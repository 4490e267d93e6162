"""Stored records, and that every benchmark writes one."""

import ast
import json

import pytest

from benchmarks.harness.records import REPOSITORY, Record

MAKEFILE = (REPOSITORY / "Makefile").read_text()
NAMES = MAKEFILE.partition("BENCHMARKS := ")[2].partition("\nPROTOS")[0].replace("\\\n", " ").split()
FILES = sorted((REPOSITORY / "benchmarks" / "records").glob("*.json"))


def names_that_run():
    """Return the benchmarks that call the harness, with their names."""
    for file in sorted((REPOSITORY / "benchmarks").glob("*/*.py")):
        tree = ast.parse(file.read_text())
        constants = {
            node.target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Constant)
        }
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        for call in calls:
            if {argument.id for argument in call.args if isinstance(argument, ast.Name)} >= {"TARGETS"}:
                first = call.args[0]
                name = first.value if isinstance(first, ast.Constant) else constants[first.id]
                yield f"{file.parent.name}.{file.stem}", name


def test_every_benchmark_writes_a_record_under_its_own_name():
    found = list(names_that_run())
    assert all(module == name for module, name in found), found
    assert {module for module, _ in found} == {*NAMES, "porting.support_matrix"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_stored_record_can_be_verified(file):
    written = json.loads(file.read_text())
    needed = {"benchmark", "command", "commit", "date", "machine", "figures", "targets", "met"}
    assert needed <= written.keys()
    record = Record.model_validate(written)
    assert record.file_name == file.name or record.commit is None
    assert record.machine["processor"]
    for name, target in record.targets.items():
        figure = record.figures.get(name)
        if figure is not None:
            low, high = target.min, target.max
            assert target.met == ((low is None or figure >= low) and (high is None or figure <= high)), name
    assert record.met == all(target.met is not False for target in record.targets.values())
