"""Every file of this machine that a config names is sent, and named by its content there."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from mistify.errors import ErrorCode, MistifyError
from mistify_client.porting.local_files import local_files

NAMES = ("net.keras", "train.npz", "words.txt", "classes.txt", "kinds.txt", "pieces.txt")


def test_files_at_every_place_of_a_config_are_sent(tmp_path: Path) -> None:
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


def test_files_with_metrics_and_losses_are_sent(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "name", ["../outside.npz", "{base}/outside.npz", "link.npz", "links/outside.npz", ".", "", "/"]
)
def test_what_lies_elsewhere_is_not_sent(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.npz").write_text("secret")
    (root / "link.npz").symlink_to(tmp_path / "outside.npz")
    (root / "links").symlink_to(tmp_path)
    config = json.dumps({"model": name.format(base=tmp_path), "dataset": {"train": "missing.npz"}})
    found = local_files(config, [root])
    assert (found.text, found.paths, found.listings) == (config, {}, {})


def test_absolute_paths_below_a_root_are_sent(tmp_path: Path) -> None:
    (tmp_path / "net.keras").write_text("net")
    found = local_files(json.dumps({"model": str(tmp_path / "net.keras")}), [tmp_path])
    assert [path.name for path in found.paths.values()] == ["net.keras"]


def test_a_link_in_a_directory_sends_nothing_from_elsewhere(tmp_path: Path) -> None:
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
def test_a_linked_directory_in_a_directory_is_refused(tmp_path: Path, target: str) -> None:
    """Left out without a word, a class would be missing."""
    root, cats = tmp_path / "root", tmp_path / target
    (root / "photos").mkdir(parents=True)
    cats.mkdir()
    (cats / "own.png").write_text("own")
    (root / "photos" / "cat").symlink_to(cats)
    with pytest.raises(MistifyError, match=rf"photos/cat: got a link to {cats}; expected .*; copy it"):
        local_files(json.dumps({"dataset": {"train": "photos"}}), [root])


def test_a_directory_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its path is longer than a path may be, which stops the superuser as well."""
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path / "photos")
    for _ in range(os.pathconf(".", "PC_PATH_MAX") // 250 + 1):
        Path("d" * 250).mkdir()
        os.chdir("d" * 250)
    with pytest.raises(MistifyError, match=r"cannot be read \(File name too long\)") as caught:
        local_files(json.dumps({"dataset": {"train": "photos"}}), [tmp_path])
    assert caught.value.code is ErrorCode.NOT_FOUND
