"""Run a package with LiteRT alone: python package.py PACKAGE INPUTS.npz OUTPUTS.npz [MILLISECONDS]."""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter


def current(package: Path) -> Path:
    """Return the current version, or the shipped package if it has not been tuned or replaced."""
    link = package.with_name(f"{package.name}.state") / "current"
    shipped = hashlib.sha256((package / "manifest.json").read_bytes()).hexdigest()
    version = link.resolve()  # valid if its name begins with the digest
    return version if version.name.startswith(shipped[:16]) and version.is_dir() else package


def verified(package: Path) -> dict:
    """Return the manifest after verifying the digests of all files."""
    manifest = json.loads((package / "manifest.json").read_bytes())
    if manifest["format_version"] not in (2, 3, 4, 5):
        raise ValueError(f"{package} has an unsupported format; see Mistify's changelog")
    for name, file in manifest["files"].items():
        if hashlib.sha256((package / name).read_bytes()).hexdigest() != file["sha256"]:
            raise ValueError(f"{package / name} is damaged; download the package again")
    return manifest


def chosen_branch(manifest: dict, milliseconds: float, slowdown: float = 1.0) -> int:
    """Return the most accurate branch within a latency, or the cheapest if there is none.

    `slowdown` is the latency on this device relative to the machine that measured the package.
    """
    fitting = [
        (branch["validation_accuracy"], number)
        for number, branch in enumerate(manifest["branches"])
        if branch["latency"]["median_ms"] * slowdown <= milliseconds
    ]
    metric = manifest["metric"]
    lower_is_better = metric in ("mse", "mae") or metric.endswith("_error")
    best = min if lower_is_better else max
    return best(fitting)[1] if fitting else 0


def stored(values: np.ndarray, tensor: dict) -> np.ndarray:
    """Return values in the format of an input, quantized if it has a scale."""
    if tensor["scale"] is None or values.dtype == tensor["dtype"]:
        return values.astype(tensor["dtype"])
    limits = np.iinfo(tensor["dtype"])
    nearest = np.round(values / tensor["scale"]) + tensor["zero_point"]
    return np.clip(nearest, limits.min, limits.max).astype(tensor["dtype"])


def weight(manifest: dict, network: bytes, name: str) -> np.ndarray:
    """Return a trainable weight from `serve.tflite`."""
    (trained,) = [one for one in manifest["training"]["weights"] if one["name"] == name]
    values = np.zeros(trained["shape"], np.float32)
    for place in trained["places"]:
        part = values[tuple(map(slice, place["start"], place["stop"]))]
        axes = place["axes"]  # the order of the dimensions in the file
        flat = np.frombuffer(network, "<f4", part.size, place["offset"]) / np.float32(place["factor"])
        part[...] = flat.reshape([part.shape[axis] for axis in axes]).transpose(np.argsort(axes))
    return values


def main(package: str, inputs: str, outputs: str, milliseconds: float = float("inf")) -> None:
    """Run one batch of any size."""
    version = current(Path(package))
    manifest = verified(version)
    signature = "serving_default"
    if manifest["branches"]:
        signature = f"branch_{chosen_branch(manifest, float(milliseconds))}"
    interpreter = Interpreter(str(version / "serve.tflite"), num_threads=manifest["latency"]["threads"])
    run = interpreter.get_signature_runner(signature)
    with np.load(inputs) as arrays:
        made = run(**{one["name"]: stored(arrays[one["name"]], one) for one in manifest["inputs"]})
    np.savez(outputs, **made)
    for output, names in manifest.get("labels", {}).items():
        if made[output].shape[-1] == len(names):
            print(output, *(names[number] for number in made[output].argmax(-1).flat))


if __name__ == "__main__":
    main(*sys.argv[1:])
