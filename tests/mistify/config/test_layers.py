"""Rules for layers in configs."""

import pytest
from pydantic import TypeAdapter, ValidationError

from mistify.config.layers import LayerRule, LayerRules

RULES: TypeAdapter[LayerRules] = TypeAdapter(LayerRules)


def test_valid_rules_are_read() -> None:
    read = RULES.validate_python({"stem*": "keep", "head": {"at_least": 16}})
    assert read == {"stem*": LayerRule(), "head": LayerRule(16)}


@pytest.mark.parametrize(
    "wrong", ["freeze", 16, None, {}, {"at_least": 0}, {"at_least": True}, {"at_least": 2, "at_most": 3}]
)
def test_invalid_rules_are_refused(wrong: object) -> None:
    with pytest.raises(ValidationError, match='expected "keep" or a number of channels above 0'):
        RULES.validate_python({"stem*": wrong})
