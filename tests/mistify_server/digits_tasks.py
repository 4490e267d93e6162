"""Tasks with small networks on the built-in digits."""

from pathlib import Path
from typing import Any

import keras

from mistify_server.tasks.recipe import Recipe, TaughtRecipe
from mistify_server.tasks.sources import DataSource, ModelSource

layers = keras.layers

DATA = DataSource(train="builtin:digits-train", test="builtin:digits-test")
SETTINGS = {"source_steps": 4, "adapt_steps": 4, "cuts": 2, "tune_steps": 2, "max_steps": 8}
COMMON: dict[str, Any] = {
    "data": DATA,
    "algorithm": "morphnet",
    "settings": SETTINGS,
    "hardware": {},
    "seed": 0,
}


def recipe(model: ModelSource, **changes: Any) -> Recipe:
    """Return the recipe of a source."""
    return Recipe(model=model, **{**COMMON, **changes})


def taught(teacher: str, **changes: Any) -> TaughtRecipe:
    """Return a recipe with a teacher; few tasks use its model."""
    return TaughtRecipe(teacher=teacher, **{"model": ModelSource(path="source.keras"), **COMMON, **changes})


def shallow() -> keras.Model:
    """Return a classifier with one convolution."""
    inputs = keras.Input((8, 8, 1))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, use_bias=False)(inputs)))
    return keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))


def saved_source(directory: Path, model: keras.Model | None = None) -> ModelSource:
    (model or shallow()).save(directory / "source.keras")
    return ModelSource(path=str(directory / "source.keras"))
