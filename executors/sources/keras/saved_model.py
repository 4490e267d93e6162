"""SavedModels written by tf_keras, with the metadata that Keras needs to rebuild them.

The graph is never run: the model is rebuilt from its configuration, and its weights are read from the
checkpoint next to the graph. Operations hidden in a graph therefore have no effect.
"""

import json
from pathlib import Path
from typing import Any

import keras

from executors.inspection import ClassPolicy, Inspected, check_config
from executors.inspection.config import parse_config
from executors.inspection.directories import METADATA, NOT_ADAPTABLE
from executors.inspection.errors import invalid
from executors.inspection.limits import LIMITS
from executors.sources.errors import unreadable
from executors.sources.keras.keras2 import check_classes
from executors.sources.keras.translation import translated


def load_saved_model(path: Path, inspected: Inspected) -> keras.Model:
    """Load a SavedModel written by tf_keras, and translate it.

    Raises:
        MistifyError: INVALID_MODEL if it is not a functional or sequential model, names anything but Keras
            layers, or lacks weights.
    """
    import tf_keras  # noqa: PLC0415 (a second Keras, only for old models)

    described = _root(path)
    check_config(path, described, inspected.weights, ClassPolicy(LIMITS))
    check_classes(path, described)
    kind = tf_keras.Sequential if described["class_name"] == "Sequential" else tf_keras.Model
    try:
        old = kind.from_config(described["config"])
        status = old.load_weights(str(path / "variables" / "variables"))
        status.assert_existing_objects_matched()
        # A checkpoint only sets variables, but a `Normalization` computes with constants derived from them.
        old.set_weights(old.get_weights())
    except Exception as error:
        raise unreadable(path, error) from error
    return translated(path, old)


def _root(path: Path) -> dict[str, Any]:
    """Return the configuration of the whole model."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 (with tf_keras)
    from tf_keras.protobuf.saved_metadata_pb2 import SavedMetadata  # noqa: PLC0415 (a second Keras)

    metadata = SavedMetadata()
    try:
        metadata.ParseFromString((path / METADATA).read_bytes())
    except DecodeError as error:
        raise invalid(path, f"a {METADATA} that is damaged") from error
    for node in metadata.nodes:
        if node.node_path == "root":
            described = parse_config(path, node.metadata, LIMITS)
            if described.get("class_name") in ("Functional", "Model", "Sequential") and "config" in described:
                root = {key: described[key] for key in ("class_name", "config")}
                return dict(json.loads(json.dumps(root), object_hook=_plain))
    raise invalid(
        path,
        f"a SavedModel that is neither a functional nor a sequential model, which {NOT_ADAPTABLE}",
        "a functional or sequential model",
        "build it from Keras's own layers",
    )


def _plain(value: dict[str, Any]) -> object:
    """Convert SavedModel's representation of a tuple to a list."""
    return value["items"] if value.get("class_name") == "__tuple__" and "items" in value else value
