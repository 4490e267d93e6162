"""Questions about four digits in one image, made from scikit-learn's digits (NumVQA: NN-Factory 5.1).

An image is 16 x 16: four digits of 8 x 8. A question is how many of them are in a set of digits: `has` any,
or `exactly:1` to `exactly:4`. Each image is made for one question, half of them for the answer yes, with any
count that this answer allows alike, so that rare answers are there. 60 questions are about one digit, odd, or
even; further ones are about other sets, from which a network learns what sets of digits mean.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from executors.data import Dataset
from mistify.scenarios.space import TaskSpace

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

QUANTIFIERS: Final = ("has", "exactly:1", "exactly:2", "exactly:3", "exactly:4")
DIGITS: Final = tuple("0123456789")
NAMES: Final = {"odd": ("1", "3", "5", "7", "9"), "even": ("0", "2", "4", "6", "8")}

#: Questions about one digit, odd, or even.
NAMED: Final = 60

#: Digits in an image.
_PLACES: Final = 4

#: Images of single digits that are only in training data, and only in validation data; 597 others are only in
#: test data.
_TRAIN_DIGITS: Final = 1080
_VALIDATION_DIGITS: Final = 120

#: The counts of digits to which each quantifier says yes [quantifiers, counts].
_YES: Final = np.array(
    [[count > 0 for count in range(5)], *[[count == wanted for count in range(5)] for wanted in range(1, 5)]]
)


@dataclass(frozen=True)
class Extent:
    """The size of the data.

    Attributes:
        train: Images of the training data.
        validated: Images of the validation data.
        tested: Images of the test data for each of the 60 questions, half of them with the answer yes.
        extra: Questions about sets of digits without a name.
        share: Share of the training and validation images that are made for such a question.
    """

    train: int = 36_000
    validated: int = 4_000
    tested: int = 160
    extra: int = 400
    share: float = 0.6


class FourDigits(NamedTuple):
    """Data sets of questions about four digits.

    Attributes:
        train: The training data.
        validation: Data on which choices are based.
        test: The test data.
        unseen: Indices of the questions that are never trained.
    """

    train: Dataset
    validation: Dataset
    test: Dataset
    unseen: Ints


class SingleDigits(NamedTuple):
    """Images of one digit each.

    Attributes:
        images: The images [n, 8, 8].
        classes: Their digits [n].
    """

    images: npt.NDArray[np.uint8]
    classes: Ints


@dataclass(frozen=True)
class Questions:
    """Questions, each a quantifier and a set of digits.

    Attributes:
        quantifiers: Index of each quantifier [questions].
        members: Whether each digit is in the set [questions, digits].
        names: Properties of each question.
    """

    quantifiers: Ints
    members: Bools
    names: tuple[tuple[str, ...], ...]

    def answers(self, digits: Ints) -> Bools:
        """Return the answers for images with these digits [images, questions].

        Args:
            digits: The four digits of each image [images, 4].
        """
        counts = np.stack([members[digits].sum(axis=1) for members in self.members], axis=1)
        answers: Bools = _YES[self.quantifiers, counts]
        return answers

    @cached_property
    def signs(self) -> list[bytes]:
        """The answers to all possible images, by which questions differ; a negation has the same sign."""
        answers = self.answers(np.array(list(product(range(10), repeat=_PLACES))))
        return [min(column.tobytes(), (~column).tobytes()) for column in answers.T]

    def subset(self, indices: Ints) -> "Questions":
        """Return some of the questions."""
        names = tuple(self.names[index] for index in indices)
        return Questions(self.quantifiers[indices], self.members[indices], names)


def named_questions() -> Questions:
    """Return the 60 questions about one digit, odd, or even."""
    subjects = {**{digit: (digit,) for digit in DIGITS}, **NAMES}
    pairs = list(product(range(len(QUANTIFIERS)), subjects))
    members = np.array([[digit in subjects[subject] for digit in DIGITS] for _, subject in pairs])
    names = tuple((QUANTIFIERS[quantifier], subject) for quantifier, subject in pairs)
    return Questions(np.array([quantifier for quantifier, _ in pairs]), members, names)


def held_out(questions: Questions, seed: int) -> Ints:
    """Return the 12 of the 60 questions that are never trained.

    One is about each digit, with all quantifiers alike; the others are one about odd and the same question in
    terms of even, such as "exactly 1 odd" and "exactly 3 even".
    """
    rng = np.random.default_rng([seed, 1])
    quantifiers = rng.permutation(np.tile(np.arange(len(QUANTIFIERS)), 2))
    singles = quantifiers * 12 + np.arange(10)
    sign = questions.signs[rng.integers(len(QUANTIFIERS)) * 12 + 10]
    same = [index for index in range(NAMED) if questions.signs[index] == sign]
    return np.array([*singles, *same])


def extra_questions(named: Questions, held: Ints, count: int, seed: int) -> Questions:
    """Return random questions about sets of two to five digits; none is a held-out one in other words."""
    rng = np.random.default_rng([seed, 2])
    taken = {named.signs[index] for index in held}
    known = {(int(q), m.tobytes()) for q, m in zip(named.quantifiers, named.members, strict=True)}
    quantifiers, members = list[int](), list[Bools]()
    while len(members) < count:
        own = np.zeros(10, bool)
        own[rng.choice(10, rng.integers(2, 6), replace=False)] = True
        quantifier = int(rng.integers(len(QUANTIFIERS)))
        question = Questions(np.array([quantifier]), own[None], ((),))
        if (quantifier, own.tobytes()) not in known and question.signs[0] not in taken:
            known.add((quantifier, own.tobytes()))
            quantifiers.append(quantifier)
            members.append(own)
    names = tuple(
        (QUANTIFIERS[quantifier], *(DIGITS[digit] for digit in np.flatnonzero(own)))
        for quantifier, own in zip(quantifiers, members, strict=True)
    )
    return Questions(np.array(quantifiers), np.array(members), names)


def space_of(*questions: Questions) -> TaskSpace:
    """Return the space of tasks whose columns are some questions."""
    tasks = {"-".join(name): name for part in questions for name in part.names}
    axes = {"how many": QUANTIFIERS, "which": DIGITS}
    return TaskSpace.model_validate({"properties": axes, "names": NAMES, "tasks": tasks})


def four_digits(seed: int = 0, extent: Extent = Extent()) -> FourDigits:
    """Return images of four digits, none of which is in two of the data sets.

    All data have the same tasks, the 60 first. Training and validation data have all answers but those of
    held-out questions. An image of the test data only answers the question that it was made for, since for
    most questions most images are easy.

    Args:
        seed: Seed for the images, the held-out questions and the extra ones.
        extent: The size of the data.
    """
    named = named_questions()
    held = held_out(named, seed)
    extra = extra_questions(named, held, extent.extra, seed)
    space = space_of(named, extra)
    train_digits, validation_digits, test_digits = _single_digits(seed)
    rng = np.random.default_rng([seed, 3])
    trained = named.subset(np.setdiff1d(np.arange(NAMED), held))

    def learned(singles: SingleDigits, count: int) -> Dataset:
        for_extra = round(extent.share * count) if extent.extra else 0
        made = [_made_for(trained, count - for_extra, rng)[0], _made_for(extra, for_extra, rng)[0]]
        digits = np.concatenate(made)
        answers = np.concatenate([named.answers(digits), extra.answers(digits)], axis=1).astype(np.int8)
        answers[:, held] = -1
        return _dataset(_images(digits, singles, rng), answers, space)

    train = learned(train_digits, extent.train)
    validation = learned(validation_digits, extent.validated)
    digits, asked = _made_for(named, NAMED * extent.tested, rng)
    answers = np.full((len(digits), len(space.tasks)), -1, np.int8)
    rows = np.arange(len(digits))
    answers[rows, asked] = named.answers(digits)[rows, asked]
    test = _dataset(_images(digits, test_digits, rng), answers, space)
    return FourDigits(train, validation, test, held)


def with_names_as_values(data: FourDigits) -> FourDigits:
    """Return the 60 questions alone, with odd and even as values of their own, as in the paper."""
    space = space_of(named_questions())
    axes = {"how many": QUANTIFIERS, "which": (*DIGITS, *NAMES)}
    space = TaskSpace.model_validate({"properties": axes, "tasks": space.tasks})

    def named(part: Dataset) -> Dataset:
        answers = None if part.answers is None else part.answers[:, :NAMED]
        return replace(part, answers=answers, space=space)

    return FourDigits(named(data.train), named(data.validation), named(data.test), data.unseen)


def _single_digits(seed: int) -> list[SingleDigits]:
    """Return the digits of training, validation and test data."""
    bunch = load_digits()
    images, classes = np.minimum(bunch.images * 16, 255).astype(np.uint8), bunch.target
    order = np.random.default_rng([seed, 0]).permutation(len(images))
    ends = [_TRAIN_DIGITS, _TRAIN_DIGITS + _VALIDATION_DIGITS]
    return [SingleDigits(images[part], classes[part]) for part in np.split(order, ends)]


def _made_for(questions: Questions, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the digits of images [images, 4], and the question that each was made for [images]."""
    digits, asked = np.zeros((count, _PLACES), np.int64), np.arange(count) % max(1, len(questions.names))
    for image, question in enumerate(asked):
        yes = image // len(questions.names) % 2 == 0
        members = questions.members[question]
        counts = np.flatnonzero(_YES[questions.quantifiers[question]] == yes)
        inside = rng.choice(counts)
        own = [
            *rng.choice(np.flatnonzero(members), inside),
            *rng.choice(np.flatnonzero(~members), _PLACES - inside),
        ]
        digits[image] = rng.permutation(own)
    return digits, asked


def _images(digits: Ints, singles: SingleDigits, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Return images of four digits each [images, 16, 16, 1]."""
    chosen = np.zeros(digits.shape, np.int64)
    for digit in range(10):
        places = digits == digit
        chosen[places] = rng.choice(np.flatnonzero(singles.classes == digit), int(places.sum()))
    grid = singles.images[chosen].reshape(-1, 2, 2, 8, 8)
    return grid.transpose(0, 1, 3, 2, 4).reshape(-1, 16, 16, 1)


def _dataset(images: npt.NDArray[np.uint8], answers: npt.NDArray[np.int8], space: TaskSpace) -> Dataset:
    """Return the data; the target of an example is its first answer that is known."""
    known = (answers >= 0).argmax(axis=1)
    targets = answers[np.arange(len(answers)), known].astype(np.int64)
    return Dataset({"image": images}, {"answer": targets[:, None]}, answers=answers, space=space)
