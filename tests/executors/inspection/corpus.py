"""Malformed models, derived from a valid one or written from scratch, and the expected problems."""

import io
import json
import os
import pickle
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

#: Maps file names to a function that writes the file, and text of the expected problem.
CORPUS: dict[str, tuple[Callable[[Path, Path], None], str]] = {}

Make = Callable[[Path, Path], None]


def malformed(name: str, text: str) -> Callable[[Make], Make]:
    """Register a function that writes a malformed model, given the path of a valid `.keras` file."""

    def add(make: Make) -> Make:
        CORPUS[name] = (make, text)
        return make

    return add


def rewritten(good: Path, path: Path, **members: bytes | None) -> None:
    """Copy an archive with a changed `config` or `weights`, or without one of them."""
    names = {"config.json": "config", "model.weights.h5": "weights"}
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = members.get(names.get(name, ""), source.read(name))
            if content is not None:
                target.writestr(name, content)


def config_of(good: Path) -> Any:
    with zipfile.ZipFile(good) as archive:
        return json.loads(archive.read("config.json"))


def weights_of(good: Path) -> Any:
    """Open the weights of an archive for changes; `.id.get_file_image()` gives their bytes."""
    with zipfile.ZipFile(good) as archive:
        return h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r+")


def layer(config: Any, kind: str) -> Any:
    return next(item for item in config["config"]["layers"] if item["class_name"] == kind)


def with_layer(good: Path, path: Path, kind: str, **changes: Any) -> None:
    config = config_of(good)
    actual = layer(config, kind)
    actual.update({key: value for key, value in changes.items() if key != "config"})
    actual["config"].update(changes.get("config", {}))
    rewritten(good, path, config=json.dumps(config).encode())


def hdf5(path: Path, config: object = None, **arrays: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
        if config is not None:
            file.attrs["model_config"] = config if isinstance(config, str) else json.dumps(config)


@malformed("empty.keras", "an empty file")
@malformed("empty.h5", "an empty file")
def empty(_good: Path, path: Path) -> None:
    path.touch()


@malformed("magic.keras", "starts with b'\\x89HDF'")
def other_magic(_good: Path, path: Path) -> None:
    hdf5(path, x=[1.0])


@malformed("magic.h5", "damaged or truncated")
def archive_as_hdf5(good: Path, path: Path) -> None:
    path.write_bytes(good.read_bytes())


@malformed("pickle.keras", "starts with b'\\x80")
@malformed("pickle.h5", "damaged or truncated")
def pickled(_good: Path, path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": [1.0] * 100}))


@malformed("cut-early.keras", "damaged or truncated")
def cut_early(good: Path, path: Path) -> None:
    path.write_bytes(good.read_bytes()[:100])


@malformed("cut-middle.keras", "damaged or truncated")
def cut_in_the_middle(good: Path, path: Path) -> None:
    path.write_bytes(good.read_bytes()[: good.stat().st_size // 2])


@malformed("cut-end.keras", "damaged or truncated")
def cut_at_the_end(good: Path, path: Path) -> None:
    path.write_bytes(good.read_bytes()[:-10])


@malformed("flipped.keras", "damaged or truncated")
def flipped(good: Path, path: Path) -> None:
    content = bytearray(good.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


@malformed("cut.h5", "damaged or truncated")
def cut_hdf5(_good: Path, path: Path) -> None:
    hdf5(path, {}, x=np.ones(10_000))
    path.write_bytes(path.read_bytes()[:5_000])


@malformed("bomb.keras", "expanding from")
def zip_bomb(good: Path, path: Path) -> None:
    rewritten(good, path)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("assets/zeros", "w") as member,
    ):
        for _ in range(64):
            member.write(bytes(2**20))


@malformed("lying-size.keras", "expanding from")
def lying_size(good: Path, path: Path) -> None:
    """The archive's directory declares a configuration of 3 GiB."""
    rewritten(good, path)
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"config.json") - 46
    content[entry + 24 : entry + 28] = struct.pack("<I", 3 * 2**30)
    path.write_bytes(content)


@malformed("members.keras", "an archive of")
def many_members(good: Path, path: Path) -> None:
    rewritten(good, path)
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(20_001):
            archive.writestr(f"assets/{number}", b"")


@malformed("link-member.keras", "a link or a device")
def link_member(good: Path, path: Path) -> None:
    rewritten(good, path)
    link = zipfile.ZipInfo("assets/passwords")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, "/etc/passwd")


@malformed("traversal.keras", "a member named '../../evil'")
def traversal(good: Path, path: Path) -> None:
    rewritten(good, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../evil", "evil")


@malformed("absolute.keras", "a member named '/opt/evil'")
def absolute(good: Path, path: Path) -> None:
    rewritten(good, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("/opt/evil", "evil")


@malformed("twice.keras", "2 members config.json")
def config_twice(good: Path, path: Path) -> None:
    rewritten(good, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("config.json", "{}")


@malformed("no-weights.keras", "0 members model.weights.h5")
def no_weights(good: Path, path: Path) -> None:
    rewritten(good, path, weights=None)


@malformed("weights-cut.keras", "damaged or truncated")
def weights_cut(good: Path, path: Path) -> None:
    with zipfile.ZipFile(good) as archive:
        rewritten(good, path, weights=archive.read("model.weights.h5")[:1000])


@malformed("no-json.keras", "that is not valid JSON")
def no_json(good: Path, path: Path) -> None:
    rewritten(good, path, config=b"{'class_name': 'Functional'}")


@malformed("list.keras", "that is not a JSON object")
def a_list(good: Path, path: Path) -> None:
    rewritten(good, path, config=b"[]")


@malformed("deep.keras", "levels deep")
def deep(good: Path, path: Path) -> None:
    rewritten(good, path, config=b'{"config":' * 500 + b"1" + b"}" * 500)


@malformed("abyss.keras", "levels deep")
def abyss(good: Path, path: Path) -> None:
    rewritten(good, path, config=b"[" * 3_000_000 + b"]" * 3_000_000)


@malformed("abyss.h5", "levels deep")
def abyss_in_hdf5(_good: Path, path: Path) -> None:
    hdf5(path, "[" * 50_000 + "]" * 50_000)


@malformed("long-config.keras", "a configuration of")
def long_config(good: Path, path: Path) -> None:
    rewritten(good, path, config=json.dumps({"words": ["x" * 10] * 1_000_000}).encode())


@malformed("long-config.h5", "a configuration of")
def long_config_in_hdf5(_good: Path, path: Path) -> None:
    hdf5(path, {"words": ["x" * 10] * 1_000_000})


@malformed("huge.keras", "with at least 1,000,000,000 weights")
def huge_layer(good: Path, path: Path) -> None:
    with_layer(good, path, "Dense", config={"units": 10**9})


@malformed("huge-kernel.keras", "with at least 600,000,000 weights")
def huge_kernel(good: Path, path: Path) -> None:
    with_layer(good, path, "Conv2D", config={"kernel_size": [10_000, 10_000]})


@malformed("endless.keras", "of the size 999")
def endless_number(good: Path, path: Path) -> None:
    with_layer(good, path, "Dense", config={"units": int("9" * 4000)})


@malformed("huge.h5", "with at least 1,000,000,000 weights")
def huge_layer_in_hdf5(good: Path, path: Path) -> None:
    config = config_of(good)
    layer(config, "Dense")["config"]["units"] = 10**9
    hdf5(path, config, x=np.ones(100))


@malformed("unstored.keras", "of which 0 are stored")
def unstored_weights(good: Path, path: Path) -> None:
    """The weights of the huge layer are declared, but not stored."""
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file.create_dataset("layers/dense/vars/0", (6, 10**8), "float32")
    config = config_of(good)
    layer(config, "Dense")["config"]["units"] = 10**8
    rewritten(good, path, weights=weights.getvalue(), config=json.dumps(config).encode())


@malformed("packed.h5", "are stored")
def packed_zeros(good: Path, path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.zeros(10**7, np.float32), compression="gzip", compression_opts=9)
        file.attrs["model_config"] = json.dumps(config_of(good))


@malformed("lambda.keras", "layer 'relu' is a Lambda: Python code")
def lambda_layer(good: Path, path: Path) -> None:
    with_layer(good, path, "ReLU", class_name="Lambda")


@malformed("lambda.h5", "layer 'f' is a Lambda: Python code")
def marshalled_lambda(_good: Path, path: Path) -> None:
    code = {"class_name": "__lambda__", "config": {"code": "4wEAAAAAAAAA", "defaults": None, "closure": None}}
    layers = [{"class_name": "Lambda", "config": {"name": "f", "function": code}}]
    hdf5(path, {"class_name": "Sequential", "config": {"name": "s", "layers": layers}}, x=[1.0])


@malformed("foreign.keras", "layer 'relu' is a Popen of subprocess")
def foreign_class(good: Path, path: Path) -> None:
    with_layer(good, path, "ReLU", class_name="Popen", module="subprocess", registered_name="Popen")


@malformed("custom.keras", "layer 'relu' is a Own of")
def custom_class(good: Path, path: Path) -> None:
    with_layer(good, path, "ReLU", class_name="Own", module=None, registered_name="Custom>Own")


@malformed("saved-model-layer.keras", "layer 'relu' is a TFSMLayer: Python code")
def saved_model_layer(good: Path, path: Path) -> None:
    with_layer(good, path, "ReLU", class_name="TFSMLayer", config={"filepath": "/opt/evil"})


@malformed("vocabulary.keras", "reads a vocabulary file")
def vocabulary_file(good: Path, path: Path) -> None:
    with_layer(good, path, "ReLU", class_name="StringLookup", config={"vocabulary": "/etc/passwd"})


@malformed("external-link.h5", "a soft or external link at /model_weights")
def external_link(good: Path, path: Path) -> None:
    hdf5(path, config_of(good))
    with h5py.File(path, "r+") as file:
        file["model_weights"] = h5py.ExternalLink("/etc/passwd", "/")


@malformed("soft-link.h5", "a soft or external link at /model_weights")
def soft_link(good: Path, path: Path) -> None:
    hdf5(path, config_of(good))
    with h5py.File(path, "r+") as file:
        file["model_weights"] = h5py.SoftLink("/model_weights")


@malformed("external-storage.h5", "stored in another file")
def external_storage(good: Path, path: Path) -> None:
    hdf5(path, config_of(good))
    with h5py.File(path, "r+") as file:
        file.create_dataset("x", (100,), "uint8", external=[("/etc/passwd", 0, 100)])


@malformed("virtual.h5", "stored in another file")
def virtual_array(good: Path, path: Path) -> None:
    hdf5(path, config_of(good))
    layout = h5py.VirtualLayout((100,), "uint8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (100,))
    with h5py.File(path, "r+") as file:
        file.create_virtual_dataset("x", layout)


@malformed("objects.h5", "of type object")
def objects(good: Path, path: Path) -> None:
    hdf5(path, config_of(good))
    with h5py.File(path, "r+") as file:
        file.create_dataset("x", data=["word"] * 10, dtype=h5py.string_dtype())


@malformed("weights-alone.h5", "without a model")
def weights_alone(_good: Path, path: Path) -> None:
    hdf5(path, x=np.ones(10))


@malformed("link.keras", "a link or a device")
def linked_file(good: Path, path: Path) -> None:
    path.symlink_to(good)


@malformed("pipe.keras", "a link or a device")
def pipe(_good: Path, path: Path) -> None:
    os.mkfifo(path)


@malformed("directory.keras", "a directory without saved_model.pb")
def directory(_good: Path, path: Path) -> None:
    path.mkdir()


@malformed("graph", "a SavedModel without variables/variables.index")
def graph_alone(_good: Path, path: Path) -> None:
    path.mkdir()
    (path / "saved_model.pb").write_bytes(b"\x08\x01")


@malformed("linked-graph", "passwords, which is a link or a device")
def link_in_a_saved_model(good: Path, path: Path) -> None:
    graph_alone(good, path)
    (path / "assets").mkdir()
    (path / "assets" / "passwords").symlink_to("/etc/passwd")


@malformed("preset", "no weights (*.h5)")
def preset_without_weights(_good: Path, path: Path) -> None:
    path.mkdir()
    (path / "config.json").write_text("{}")


def write_corpus(good: Path, directory: Path) -> dict[str, tuple[Path, str]]:
    """Write all malformed models below a directory; return the expected problems by file name."""
    for name, (make, _) in CORPUS.items():
        make(good, directory / name)
    return {name: (directory / name, text) for name, (_, text) in CORPUS.items()}
