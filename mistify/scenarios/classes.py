"""The classes of a task that consists of some of a classifier's classes."""

from collections.abc import Sequence

from mistify.parsing.validation import InvalidValue, unknown_name


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


def _number(each: str, names: Sequence[str], count: int) -> int:
    if each in names:
        return names.index(each)
    if each.isdecimal() and int(each) < count:
        return int(each)
    if names:
        raise InvalidValue(each, *unknown_name(each, names))
    raise InvalidValue(each, f"the number of a class from 0 to {count - 1}", "correct it")
