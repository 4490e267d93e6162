"""The requirements on an adapted network: limits on its costs, and a target accuracy (paper, 4.1)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    create_model,
    model_validator,
)

from mistify.config.data.targets import OVERALL
from mistify.costs.axes import Axis, axis_registry
from mistify.parsing.quantities import Quantity, format_share, parse_figure
from mistify.parsing.validation import InvalidValue, Settings

Figure = Annotated[float, PlainValidator(parse_figure), PlainSerializer(format_share)]


def _by_output(raw: object) -> object:
    if isinstance(raw, Mapping) and raw:
        return raw
    if isinstance(raw, Mapping):
        raise InvalidValue(raw, "a figure for at least one output", 'for example {"price": 0.05}')
    return {OVERALL: parse_figure(raw)}


def _as_written(figures: Mapping[str, float]) -> object:
    written = {output: format_share(figure) for output, figure in figures.items()}
    return written[OVERALL] if written.keys() == {OVERALL} else written


Figures = Annotated[dict[str, Figure], BeforeValidator(_by_output), PlainSerializer(_as_written)]


class AdaptationGoal(Settings):
    """The requirements on an adapted network (4.1): limits on its costs, and a target accuracy.

    Each axis that is known here is a field (`FLOP`, `latency`, ...); the server may know others. `accuracy`
    has a target for each named output; a single target is stored under `OVERALL`.

    Attributes:
        accuracy: The target that the package has to reach on the test data, by the `metric` of the data; or a
            target for each output, by that output's metric.
    """

    model_config = ConfigDict(extra="allow")

    accuracy: Figures | None = Field(
        default=None, description="a figure, or an object of figures by output", examples=["0.80"]
    )

    @property
    def limits(self) -> dict[str, Quantity]:
        """The limits as written, by the key of their axis, without unknown axes."""
        limits = {key: getattr(self, key) for key in axis_registry().axes if key in self.model_fields_set}
        return {key: limit for key, limit in limits.items() if limit is not None}

    @model_validator(mode="after")
    def _has_a_limit(self) -> "AdaptationGoal":
        if not self.limits and not self.model_extra:
            known = axis_registry().axes
            raise InvalidValue(
                self.model_dump(exclude_none=True),
                f"a limit on at least one of {', '.join(known)}",
                'add one, for example "FLOP": "0.5x"',
            )
        return self


def _limit_on(axis: Axis) -> Any:
    def limit(raw: object) -> Quantity:
        parsed = axis.kind.parse(raw)
        if axis.kind.whole and not parsed.relative and parsed.value < 1:  # a share without its "x"
            fix = f'for a share of the source, write "{parsed.value:g}x"'
            raise InvalidValue(raw, axis.kind.expected, fix)
        return parsed

    return Annotated[Quantity, PlainValidator(limit), PlainSerializer(axis.kind.format)] | None


def _limit_on_broken(name: str, reason: str) -> Any:
    def refuse(value: object) -> None:
        raise InvalidValue(
            value, "the name of a metric that can be used", f"fix the plug-in {name}: {reason}"
        )

    return Annotated[None, PlainValidator(refuse)]


if TYPE_CHECKING:
    KnownGoal = AdaptationGoal
else:
    KnownGoal = create_model(
        "AdaptationGoal",
        __base__=AdaptationGoal,
        **{name: (_limit_on_broken(name, why), None) for name, why in axis_registry().broken.items()},
        **{
            key: (_limit_on(axis), Field(default=None, examples=["0.5x"]))
            for key, axis in axis_registry().axes.items()
        },
    )
