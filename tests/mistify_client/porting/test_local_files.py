"""Every file of this machine that a config names is sent, and named by its content there."""

import hashlib
import json
from pathlib import Path

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
