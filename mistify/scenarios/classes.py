"""The classes of a task that consists of some of a classifier's classes."""

from collections.abc import Sequence

from mistify.parsing.validation import InvalidValue, unknown_name
from mistify.scenarios.words import SEPARATOR


def class_numbers(classes: Sequence[str], names: Sequence[str], count: int) -> tuple[int, ...]:
    """Return the numbers of some classes in ascending order.

    Args:
        classes: Names of classes, or their numbers as text; names take precedence.
        names: Names of the classes by number; empty if they have no names.
        count: The number of classes.

    Raises:
        InvalidValue: A class does not exist or is named twice.
    """
    numbers: list[int] = []
    for each in classes:
        number = _number(each, names, count)
        if number in numbers:
            raise InvalidValue(each, "each class once", "leave it out")
        numbers.append(number)
    return tuple(sorted(numbers))


def classes_in(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the classes of a text with commas between them.

    Args:
        names: Names of classes, which may have commas in them, too: the longest name at each place counts.
    """
    parts, classes = text.split(SEPARATOR), list[str]()
    while parts:
        starts = (SEPARATOR.join(parts[:length]).strip() for length in range(len(parts), 0, -1))
        first = next((start for start in starts if start in names), parts[0].strip())
        classes.append(first)
        del parts[: 1 + first.count(SEPARATOR)]
    return tuple(classes)


def class_texts(numbers: Sequence[int], names: Sequence[str]) -> tuple[str, ...]:
    """Return the texts by which `class_numbers` finds classes: names, or numbers where several have a name.

    Args:
        names: Names of all classes by number.
    """
    return tuple(names[number] if names.count(names[number]) == 1 else str(number) for number in numbers)


def _number(each: str, names: Sequence[str], count: int) -> int:
    if names.count(each) > 1:
        raise InvalidValue(each, "a class by its number, as several have this name", "write the number")
    if each in names:
        return names.index(each)
    if each.isdecimal() and int(each) < count:
        return int(each)
    if names:
        raise InvalidValue(each, *unknown_name(each, names))
    raise InvalidValue(each, f"the number of a class from 0 to {count - 1}", "correct it")
