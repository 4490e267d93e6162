"""How an app handles a package's inputs and outputs: preparing inputs, and naming classes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from mistify.config.data.targets import OVERALL
from mistify.config.files import FileField
from mistify.parsing.validation import InvalidValue, Settings

#: A shape without the batch dimension; None for a free size.
Shape: TypeAlias = Sequence[int | None]
Positive = Annotated[float, Field(gt=0)]
Pixels = Annotated[int, Field(ge=1)]
File = Annotated[str, StringConstraints(min_length=1, max_length=1024), FileField()]

Colour: TypeAlias = Literal["rgb", "bgr", "grey"]
_CHANNELS: Final[Mapping[Colour, int]] = {"rgb": 3, "bgr": 3, "grey": 1}
_EXAMPLE_OF_LABELS: Final = 'for example ["cat", "dog"]'


def _names(raw: object) -> object:
    """Check names of classes, or the name of a file with one name per line."""
    names = [raw] if isinstance(raw, str) else raw
    if isinstance(names, list | tuple) and names and all(isinstance(n, str) and n.strip() for n in names):
        return raw
    expected = "a list of names, or the name of a file with a name on each line"
    raise InvalidValue(raw, expected, _EXAMPLE_OF_LABELS)


def _by_output(raw: object) -> object:
    return raw if isinstance(raw, Mapping) and raw else {OVERALL: raw}


#: Names of classes by output, or under `OVERALL` for the only classification output.
Labels = Annotated[
    dict[str, Annotated[tuple[str, ...] | str, BeforeValidator(_names), FileField()]],
    BeforeValidator(_by_output),
    FileField(),
]


class InputScaling(Settings):
    """The conversion of raw data to the values that the model expects; it is part of a package.

    Either `x * factor + offset`, or `(x - mean) / std` with a value for each channel.
    """

    factor: float = Field(default=1.0, description="a factor for each value")
    offset: float = Field(default=0.0, description="added to each value after the multiplication")
    mean: tuple[float, ...] | None = Field(
        default=None,
        description="subtracted from each value, one per channel; with `std`, replaces `factor` and `offset`",
    )
    std: tuple[Positive, ...] | None = Field(
        default=None, description="the divisor after the subtraction, one per channel"
    )

    @model_validator(mode="after")
    def _check_scaling(self) -> "InputScaling":
        by_channel = self.mean is not None or self.std is not None
        equal = self.mean is not None and self.std is not None and len(self.mean) == len(self.std)
        if by_channel and (not equal or (self.factor, self.offset) != (1.0, 0.0)):
            raise InvalidValue(
                self.model_dump(include={"factor", "offset", "mean", "std"}, exclude_defaults=True),
                '"factor" and "offset", or "mean" and "std" of one length',
                'for example {"factor": 0.003921569}',
            )
        return self


class ImagePreparation(InputScaling):
    """The conversion of an image, RGB values from 0 to 255, to an input of the package.

    The image is resized, its channels are reordered, and its values are scaled. Mean and standard deviation
    are in the order of the input's channels. Manifests always contain size and colour.
    """

    size: tuple[Pixels, Pixels] | None = Field(
        default=None,
        description="height and width; by default, those of the input",
        examples=[[224, 224]],
    )
    resize: Literal["bilinear", "nearest"] = Field(
        default="bilinear", description='"bilinear", with antialiasing, or "nearest"'
    )
    colour: Colour | None = Field(
        default=None,
        description='"rgb", "bgr" or "grey"; by default, "rgb" for three channels, "grey" for one',
    )
    layout: Literal["channels_last", "channels_first"] = Field(
        default="channels_last", description='"channels_last" or "channels_first"'
    )

    def of(self, shape: Shape) -> "ImagePreparation":
        """Return the preparation for an input of this shape, with its size and colour.

        Raises:
            InvalidValue: The input does not accept such an image.
        """
        sizes = list(shape)
        if len(sizes) != len(("height", "width", "channels")):
            raise InvalidValue(
                list(shape), "an input with height, width and channels", "declare another kind"
            )
        channels = sizes.pop(-1 if self.layout == "channels_last" else 0)
        colour = self.colour or ("grey" if channels == 1 else "rgb")
        if channels is not None and channels != _CHANNELS[colour]:
            fix = f"correct colour or layout: the input has the shape {list(shape)}"
            raise InvalidValue(f"{channels} channels", f"{_CHANNELS[colour]} of {colour}", fix)
        if self.mean is not None and len(self.mean) != _CHANNELS[colour]:
            expected = f"{_CHANNELS[colour]} values of mean and std"
            raise InvalidValue(list(self.mean), expected, "give one for each channel")
        return self.model_copy(update={"size": self._size(sizes), "colour": colour})

    def _size(self, sizes: Shape) -> tuple[int, int]:
        height, width = self.size or sizes
        if height is None or width is None:
            raise InvalidValue("no size", "a size, because the input does not fix one", 'add "size"')
        for size, own in zip((height, width), sizes, strict=True):
            if own not in (None, size):
                raise InvalidValue([height, width], f"the input's {list(sizes)}", "leave it out")
        return height, width


class TokenPreparation(Settings):
    """The tokens of an input.

    A package contains the vocabulary: `vocabulary` in its manifest is the name of that file.
    """

    length: int | None = Field(
        default=None,
        ge=1,
        description="tokens in an example; by default, the length of the input",
        examples=[64],
    )
    vocabulary: File = Field(
        description="a file with one token per line; the id of a token is its line number, from 0",
        examples=["vocab.txt"],
    )

    def of(self, shape: Shape) -> "TokenPreparation":
        """Return the preparation for an input of this shape, with its length.

        Raises:
            InvalidValue: The input does not accept such tokens.
        """
        if len(shape) != 1:
            raise InvalidValue(list(shape), "an input with one token id per position", "declare another kind")
        length = self.length or shape[0]
        if length is None:
            raise InvalidValue("no length", "a length, because the input does not fix one", 'add "length"')
        if shape[0] not in (None, length):
            raise InvalidValue(length, f"the input's {shape[0]}", "leave it out")
        return self.model_copy(update={"length": length})


class Preparation(Settings):
    """The preparation of one input: as an image or as tokens.

    Attributes:
        image: How an image is converted to the input.
        tokens: How a text is converted to the input.
    """

    image: ImagePreparation | None = Field(default=None, exclude_if=lambda image: image is None)
    tokens: TokenPreparation | None = Field(default=None, exclude_if=lambda tokens: tokens is None)

    @model_validator(mode="after")
    def _check_kind(self) -> "Preparation":
        if (self.image is None) == (self.tokens is None):
            raise InvalidValue(
                self.model_dump(exclude_defaults=True),
                'either "image" or "tokens"',
                'for example {"image": {}}',
            )
        return self

    def of(self, shape: Shape) -> "Preparation":
        """Return the preparation for an input of this shape, with all derived settings.

        Args:
            shape: Without the batch dimension; None for a free size.

        Raises:
            InvalidValue: The input does not accept this kind of data.
        """
        return Preparation(
            image=self.image and self.image.of(shape), tokens=self.tokens and self.tokens.of(shape)
        )

    def with_vocabulary(self, name_of: Callable[[str], str]) -> "Preparation":
        """Return the preparation with its vocabulary renamed, if it has one.

        Args:
            name_of: Maps the present name to the new one, such as a path.
        """
        if self.tokens is None:
            return self
        named = {"vocabulary": name_of(self.tokens.vocabulary)}
        return Preparation(tokens=self.tokens.model_copy(update=named))
