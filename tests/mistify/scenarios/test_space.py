"""Tasks as sets of properties: reading their space, writing one down, encoding it, finding its neighbours."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify.parsing.validation import shown
from mistify.scenarios.space import TaskSpace

DIGITS = {
    "properties": {
        "how many": ["has", "exactly:1", "exactly:2"],
        "which": ["0", "1", "2", "3", "4"],
    },
    "names": {"odd": ["1", "3"], "even": ["0", "2", "4"]},
    "tasks": {"two-odd": ["exactly:2", "odd"], "has-4": ["has", "4"], "one-even": ["exactly:1", "even"]},
}


@pytest.fixture
def space() -> TaskSpace:
    return TaskSpace.read(json.dumps(DIGITS))


def changed(**parts: object) -> str:
    return json.dumps({**copy.deepcopy(DIGITS), **parts})


def problems(text: str) -> list[str]:
    with pytest.raises(MistifyError) as caught:
        TaskSpace.read(text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return [str(problem) for problem in caught.value.problems]


def test_reads_a_file_with_comments(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(f"// questions about digits\n{json.dumps(DIGITS)}")
    space = TaskSpace.read(path)
    assert space.axes["how many"] == ("has", "exactly:1", "exactly:2")
    assert [*space.tasks] == ["two-odd", "has-4", "one-even"]
    assert space.size == 8


@pytest.mark.parametrize(
    "written",
    [
        "two-odd",
        ["two-odd"],
        "exactly:2, odd",
        "odd,exactly:2",
        ["exactly:2", "odd"],
        ["3", "exactly:2", "1"],
    ],
)
def test_tasks_with_the_same_values_are_equal(space: TaskSpace, written: str | list[str]) -> None:
    task = space.parse(written)
    assert task == space.parse("two-odd")
    assert hash(task) == hash(space.parse("two-odd"))
    assert str(task) == "exactly:2, odd"
    assert task.values == {"how many": {"exactly:2"}, "which": {"1", "3"}}


def test_values_without_a_name_of_their_own_are_listed_in_order(space: TaskSpace) -> None:
    assert str(space.parse(["3", "has", "0"])) == "has, 0, 3"
    assert str(space.parse(["odd", "has", "0"])) == "has, 0, 1, 3"


def test_numbers_are_words(space: TaskSpace) -> None:
    numbers = TaskSpace.read('{"properties": {"which": [1, 2]}, "tasks": {"first": [1]}}')
    assert numbers.axes == {"which": ("1", "2")}
    assert str(numbers.parse("2")) == "2"


def test_encodes_names_as_their_values(space: TaskSpace) -> None:
    np.testing.assert_array_equal(space.encode(space.parse("two-odd")), [0, 0, 1, 0, 1, 0, 1, 0])
    np.testing.assert_array_equal(space.encode(space.parse("has, 4")), [1, 0, 0, 0, 0, 0, 0, 1])
    assert space.encode(space.parse("has, 4")).dtype == np.float32


def test_knows_listed_tasks_and_their_columns(space: TaskSpace) -> None:
    assert space.is_trained(space.parse("4, has"))
    assert not space.is_trained(space.parse("has, 3"))
    assert [*space.listed.values()] == [0, 1, 2]
    assert space.listed[space.parse("exactly:1, 0, 2, 4")] == 2


def test_the_nearest_tasks_share_most_values(space: TaskSpace) -> None:
    near = space.nearest(space.parse("exactly:2, 1"), 2)
    assert [str(task) for task in near] == ["exactly:2, odd", "has, 4"]
    assert space.nearest(space.parse("exactly:1, 0, 2"), 1) == (space.parse("one-even"),)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            ["exactly:2", "od"],
            'task[1]: got "od"; expected one of 0, 1, 2, 3, 4, even, exactly:1, exactly:2, has, odd; '
            'did you mean "odd"?',
        ),
        (
            ["has", "exactly:2", "odd"],
            'task: got ["has", "exactly:2"]; expected one value of "how many": '
            "has, exactly:1, exactly:2; leave the others out",
        ),
        (
            ["has"],
            'task: got ["has"]; expected a value of "which" as well: 0, 1, 2, 3, 4, odd, even; '
            'add one, for example "0"',
        ),
        (
            "two-od",
            'task: got "two-od"; expected one of 0, 1, 2, 3, 4, even, exactly:1, exactly:2, has, has-4, odd, '
            'one-even, two-odd; did you mean "two-odd"?',
        ),
    ],
)
def test_mistakes_in_a_task_have_place_and_suggestion(
    space: TaskSpace, written: list[str] | str, expected: str
) -> None:
    with pytest.raises(MistifyError) as caught:
        space.parse(written)
    assert [str(problem) for problem in caught.value.problems] == [expected]


def test_all_mistakes_in_a_task_are_found(space: TaskSpace) -> None:
    with pytest.raises(MistifyError) as caught:
        space.parse(["twice", "od"], "[0].task")
    assert [problem.place for problem in caught.value.problems] == ["[0].task[0]", "[0].task[1]"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"properties": {"which": ["0"]}', "line 1, column 32: got the end of the text"),
        (changed(colour=1), 'colour: got the key "colour"; expected one of names, properties, tasks'),
        (changed(tasks={}), "tasks: got {}; expected 1 or more items"),
        (changed(properties={}), "properties: got {}; expected 1 or more items"),
        (changed(properties={"a": []}), "properties.a: got []; expected 1 or more items"),
        (changed(properties={"a": "x"}), 'properties.a: got "x"; expected a list'),
        (changed(properties=["a"]), 'properties: got ["a"]; expected an object'),
        ("[1]", "the file: got [1]; expected an object; its keys can be properties, names, tasks"),
        (changed(tasks={"a": ["has", "9"]}), 'tasks.a[1]: got "9"; expected one of 0, 1, 2, 3, 4, even'),
        (changed(tasks={"a": ["has", "1"], "b": ["1", "has"]}), 'tasks.b: got ["1", "has"]; expected a task'),
        (changed(names={"odd": ["1", "5"]}), 'names.odd[1]: got "5"; expected one of 0, 1, 2, 3, 4'),
        (changed(names={"odd": ["1", "has"]}), 'names.odd: got ["1", "has"]; expected values of one axis'),
        (changed(names={"1": ["1", "3"]}), 'names["1"]: got "1"; expected a name that is no value'),
        (
            changed(properties={"a": ["x"], "b": ["x"]}),
            'properties.b[0]: got "x"; expected a value that no other property has',
        ),
        (changed(names={"odd": ["1", "1"]}), 'names.odd[1]: got "1"; expected each value once'),
        (changed(tasks={"odd": ["has", "1"]}), 'tasks.odd: got "odd"; expected a name that is no property'),
        (changed(tasks={"has": ["has", "1"]}), 'tasks.has: got "has"; expected a name that is no property'),
        (changed(names={"odd": ["1"], "odd ": ["3"]}), 'names: got "odd "; expected each name once'),
        (
            changed(properties={"a": ["\u00e9", "e\u0301"]}),
            'properties.a[1]: got "\\u00e9"; expected a value that no other property has',
        ),
    ],
)
def test_mistakes_in_the_file_have_places(text: str, expected: str) -> None:
    found = problems(text)
    assert any(problem.startswith(expected) for problem in found), found


@pytest.mark.parametrize("word", ["x,y", "", " ", "x" * 65, "x\ny", "\x1b[31mred", "\u200b", 1.5, True, None])
def test_words_can_be_typed_and_seen(word: object) -> None:
    assert problems(changed(properties={"which": [word, "b"]}, names={}, tasks={"a": ["b"]})) == [
        f"properties.which[0]: got {shown(word)}; expected a text of 1 to 64 printable characters without "
        "commas; correct it"
    ]


def test_the_same_letters_are_the_same_property(space: TaskSpace) -> None:
    """One letter with its accent, or the letter and the accent, as some systems write it."""
    file = {"properties": {"what": ["caf\u00e9", "bar"]}, "tasks": {"t": ["cafe\u0301"]}}
    read = TaskSpace.read(json.dumps(file))
    assert read.parse("cafe\u0301") == read.parse("caf\u00e9")


def test_a_task_may_have_the_name_of_the_property_that_it_is() -> None:
    file = {"properties": {"which": ["1", "2"]}, "tasks": {"1": ["1"], "second": ["2"]}}
    assert TaskSpace.read(json.dumps(file)).parse("1").properties == ("1",)


def test_files_of_other_encodings(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(DIGITS), "utf-8-sig")
    assert TaskSpace.read(path).size == 8
    path.write_bytes(
        json.dumps({**DIGITS, "names": {"caf\u00e9": ["1"]}}, ensure_ascii=False).encode("latin-1")
    )
    with pytest.raises(
        MistifyError, match=r"mine\.json: 1 problem.*\n  the file: got bytes that are not UTF-8"
    ) as caught:
        TaskSpace.read(path)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_messages_name_some_of_many_properties() -> None:
    values = [f"v{number}" for number in range(500)]
    many = TaskSpace.read(json.dumps({"properties": {"a": values, "b": ["x"]}, "tasks": {"t": ["v0", "x"]}}))
    for task in (["v0", "y"], ["x"], ["v0", "v1", "x"]):
        with pytest.raises(MistifyError, match=r" and 46\d more") as caught:
            many.parse(task)
        assert len(str(caught.value)) < 600


def test_lists_the_words_of_an_axis(space: TaskSpace) -> None:
    assert space.words("how many") == ("has", "exactly:1", "exactly:2")
    assert space.words("which") == ("0", "1", "2", "3", "4", "odd", "even")
    assert [axis for axis in space.axes if space.takes_several(axis)] == ["which"]
