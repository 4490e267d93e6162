"""Presets of keras_hub, and malformed presets for the corpus."""

import json
from pathlib import Path

from tests.executors.inspection.corpus import hdf5, malformed

PRESET = {"module": "keras_hub", "class_name": "Own", "registered_name": "keras_hub>Own", "config": {}}


def preset(path: Path, config: object, **others: object) -> None:
    """Return a preset with one weight, this configuration, and other JSON files."""
    path.mkdir()
    hdf5(path / "model.weights.h5", x=[1.0])
    for name, content in {"config": config, **others}.items():
        (path / f"{name}.json").write_text(json.dumps(content))


@malformed("transformers-preset", "a preset of another library")
def preset_of_transformers(_good: Path, path: Path) -> None:
    preset(path, {"model_type": "bert"})


@malformed("safetensors-preset", "model.safetensors.index.json")
def preset_with_safetensors(_good: Path, path: Path) -> None:
    preset(path, PRESET, **{"model.safetensors.index": {"weight_map": {"a": "../../other"}}})


@malformed("outside-preset", "weights in '../model.weights.h5'")
def preset_with_weights_outside(_good: Path, path: Path) -> None:
    index = {"weight_map": {"a": "model.weights.h5", "b": ["../model.weights.h5"]}}
    preset(path, PRESET, **{"model.weights": index})


@malformed("unmapped-preset", "weights in 'None'")
def preset_without_a_map(_good: Path, path: Path) -> None:
    preset(path, PRESET, **{"model.weights": {}})


@malformed("compiled-preset", "an object of the class Lambda: Python code")
def preset_compiled_with_code(_good: Path, path: Path) -> None:
    preset(path, {**PRESET, "compile_config": {"loss": {"class_name": "Lambda", "config": {}}}})
