"""The reference of settings describes every key of every config as declared."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("griffe", reason="needs the extra docs")

from docs_site.settings import Setting, page, sections
from mistify.parsing.jsonc import read_json
from tests.support.paths import REPOSITORY

SETTINGS = {section.title: {one.key: one for one in section.settings} for section in sections()}


def keys(value: Any, above: str = "") -> Iterator[str]:
    """Yield the keys of a config and its nested objects; freely chosen keys are not resolved further."""
    for key, inner in value.items():
        yield above + key
        if isinstance(inner, dict):
            yield from keys(inner, f"{above}{key}.")


def documented(title: str, *configs: dict[str, Any]) -> None:
    known = SETTINGS[title].keys()
    named = {key for config in configs for key in keys(config)}
    own = {key for key in named if key.startswith(("algorithm.config.", "policy."))}  # keys of other tables
    assert named - own <= known
    assert len(named) > 5


def test_the_keys_of_all_example_configs_are_described() -> None:
    for name in ("digits.json", "figure3.json", "resnet8_cifar10.json", "streaming_wakeword.json"):
        documented("Goals", *read_json((REPOSITORY / "configs" / name).read_text())[0])
    for name, title in {"server.toml": "The server", "monitor.toml": "The monitor"}.items():
        commented = (REPOSITORY / "configs" / name).read_text()
        text = re.sub(r"^# (?=\w+ = |\[[\w.]+\])", "", commented, flags=re.MULTILINE)
        documented(title, tomllib.loads(text))


@pytest.mark.parametrize("title", SETTINGS)
def test_every_key_has_a_type_and_a_meaning(title: str) -> None:
    for setting in SETTINGS[title].values():
        assert setting.expected, setting
        assert re.fullmatch(r"[^a-z].*\.", setting.meaning), setting


@pytest.mark.parametrize(
    ("title", "setting"),
    [
        ("Goals", Setting("id", "an id that can name a directory", "",
                          "The goal's name, and the name of its output directory.", True)),
        ("Goals", Setting("dataset.augment.flip", "true or false", "false",
                          "Whether images are mirrored left to right with a probability of 50 %.", False)),
        ("Algorithms", Setting("batch_size", "a whole number from 1 to 4096", "64",
                               "Examples per training step.", False)),
        ("The monitor", Setting("interval", 'a time such as "250ms"', "250ms",
                                "Seconds between decisions.", False)),
        ("The server", Setting("store", "a directory", "",
                               "Directory of the server's jobs, models and packages.", True)),
    ],
)  # fmt: skip
def test_a_key_is_described_as_declared_in_its_model(title: str, setting: Setting) -> None:
    assert SETTINGS[title][setting.key] == setting


def test_choices_and_defaults_are_shown_as_users_write_them() -> None:
    assert SETTINGS["Goals"]["branches.from"].default == '"1/3x"'
    assert SETTINGS["Goals"]["quantization.precision"].expected == (
        '"none", "float16", "dynamic", "int8", "int8-qat" or "auto"'
    )
    assert SETTINGS["Goals"]["tuning.trainable"].expected.startswith('"none", "network", "head"')


def test_an_algorithm_only_has_its_own_settings_and_defaults() -> None:
    assert SETTINGS["Algorithm chamnet"].keys() == {
        "cuts", "init_population", "crossover_rate", "mutation", "samples",
    }  # fmt: skip
    assert SETTINGS["Algorithm chamnet"]["cuts"].default == "3"


def test_a_vertical_bar_in_a_text_does_not_end_its_cell() -> None:
    for line in page().splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 5, line


def test_defaults_are_shown_as_json_or_toml() -> None:
    for setting in SETTINGS["Goals"].values():
        assert not setting.default or json.loads(setting.default) is not None
