"""All local files in a config are uploaded, and named by their content on the server."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.porting.local_files import local_files

NAMES = ("net.keras", "train.npz", "words.txt", "classes.txt", "kinds.txt", "pieces.txt")


def test_files_in_all_settings_of_a_config_are_uploaded(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_text(name)
    config = {
        "defaults": {"model": "net.keras", "dataset": {"labels": "classes.txt"}},
        "goals": [
            {
                "dataset": {
                    "train": "train.npz",
                    "test": "missing.npz",
                    "text": {"vocabulary": "words.txt"},
                    "labels": {"kind": "kinds.txt", "open": ["no", "yes"]},
                    "preparation": {
                        "photo": {"image": {}},
                        "ids": {"tokens": {"vocabulary": "pieces.txt", "length": 5}},
                    },
                }
            }
        ],
    }
    found = local_files(json.dumps(config), [tmp_path])
    assert {path.name for path in found.paths.values()} == set(NAMES)
    sent = {name: f"upload:{hashlib.sha256(name.encode()).hexdigest()}/{name}" for name in NAMES}
    expected = json.dumps(config)
    for name, upload in sent.items():
        expected = expected.replace(f'"{name}"', f'"{upload}"')
    assert json.loads(found.text) == json.loads(expected)


def test_files_with_metrics_and_losses_are_uploaded(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("code")
    (tmp_path / "focal").write_text("a file that is not meant")
    dataset = {"metric": "own.py:near", "losses": {"a": "own.py:cautious", "b": "focal"}}
    found = local_files(json.dumps({"dataset": dataset}), [tmp_path])
    upload = f"upload:{hashlib.sha256(b'code').hexdigest()}/own.py"
    assert [path.name for path in found.paths.values()] == ["own.py"]
    assert json.loads(found.text)["dataset"] == {
        "metric": f"{upload}:near",
        "losses": {"a": f"{upload}:cautious", "b": "focal"},
    }


def test_an_onnx_file_is_uploaded_with_its_external_data(tmp_path: Path) -> None:
    for name in ("net.onnx", "net.onnx.data", "alone.onnx", "photo.jpg"):
        (tmp_path / name).write_text(name)
    config = [{"model": "net.onnx?image=3,8,8"}, {"model": "alone.onnx"}]
    found = local_files(json.dumps(config), [tmp_path])
    assert sorted(path.name for path in found.paths.values()) == ["alone.onnx", "net.onnx", "net.onnx.data"]
    ((listing, content),) = found.listings.items()
    assert json.loads(content) == {
        name: [hashlib.sha256(name.encode()).hexdigest(), len(name)] for name in ("net.onnx", "net.onnx.data")
    }
    with_data, alone = (goal["model"] for goal in json.loads(found.text))
    assert with_data == f"upload:{listing.sha256}/net.onnx/?image=3,8,8"
    assert alone == f"upload:{hashlib.sha256(b'alone.onnx').hexdigest()}/alone.onnx"


@pytest.mark.parametrize(
    "name", ["../outside.npz", "{base}/outside.npz", "link.npz", "links/outside.npz", ".", "", "/"]
)
def test_files_outside_the_data_roots_are_not_uploaded(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.npz").write_text("secret")
    (root / "link.npz").symlink_to(tmp_path / "outside.npz")
    (root / "links").symlink_to(tmp_path)
    config = json.dumps({"model": name.format(base=tmp_path), "dataset": {"train": "missing.npz"}})
    found = local_files(config, [root])
    assert (found.text, found.paths, found.listings) == (config, {}, {})


def test_absolute_paths_below_a_data_root_are_uploaded(tmp_path: Path) -> None:
    (tmp_path / "net.keras").write_text("net")
    found = local_files(json.dumps({"model": str(tmp_path / "net.keras")}), [tmp_path])
    assert [path.name for path in found.paths.values()] == ["net.keras"]


def test_a_symbolic_link_out_of_the_data_roots_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "photos").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "own.png").write_text("own")
    (root / "photos" / "own.png").symlink_to(root / "own.png")
    config = json.dumps({"dataset": {"train": "photos"}})
    assert [path.name for path in local_files(config, [root]).paths.values()] == ["own.png"]
    (root / "photos" / "link.png").symlink_to(tmp_path / "secret")
    with pytest.raises(MistifyError, match=r"link\.png: got a link to .*secret; expected files below"):
        local_files(config, [root])
    assert len(local_files(config, [tmp_path, root]).paths) == 2


@pytest.mark.parametrize("target", ["elsewhere", "root/cats"])
def test_a_symbolic_link_to_a_directory_is_refused(tmp_path: Path, target: str) -> None:
    """Silently skipping it would lose a class."""
    root, cats = tmp_path / "root", tmp_path / target
    (root / "photos").mkdir(parents=True)
    cats.mkdir()
    (cats / "own.png").write_text("own")
    (root / "photos" / "cat").symlink_to(cats)
    with pytest.raises(MistifyError, match=rf"photos/cat: got a link to {cats}; expected .*; copy it"):
        local_files(json.dumps({"dataset": {"train": "photos"}}), [root])


def test_an_unreadable_directory_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path exceeds the maximum length, which even root cannot read."""
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path / "photos")
    for _ in range(os.pathconf(".", "PC_PATH_MAX") // 250 + 1):
        Path("d" * 250).mkdir()
        os.chdir("d" * 250)
    with pytest.raises(MistifyError, match=r"cannot be read \(File name too long\)") as caught:
        local_files(json.dumps({"dataset": {"train": "photos"}}), [tmp_path])
    assert caught.value.code is ErrorCode.NOT_FOUND
