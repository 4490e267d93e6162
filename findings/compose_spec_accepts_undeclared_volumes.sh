#!/usr/bin/env bash
# compose-spec 0.2.1 accepts mounts of volumes that a compose file does not declare.
#
# Expected: `validate()` and `validate_volumes()` raise ValueError if a service mounts a volume that is missing in the
# top-level `volumes`, as `validate()` does for networks, secrets and configs, and as its description says for all four.
# Observed: both accept it, written as "data:/data" or as a mapping, also if other volumes are declared. Compose itself
# refuses such a file.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet compose-spec==0.2.1
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import json
from importlib.metadata import version

from compose_spec import PyCompose

print("compose-spec", version("compose-spec"))


def refusal(field, uses, declared):
    """Return why a file is refused in which a service uses a resource; empty if it is accepted."""
    services = {"web": {"image": "nginx", field: [uses]}}
    file = PyCompose.from_json(json.dumps({"services": services, field: {declared: {"external": True}}}))
    try:
        file.validate()
        getattr(file, f"validate_{field}")()
    except ValueError as error:
        return str(error)
    return ""


for field, uses in (
    ("networks", "data"),
    ("secrets", "data"),
    ("configs", "data"),
    ("volumes", "data:/data"),
    ("volumes", {"type": "volume", "source": "data", "target": "/data"}),
):
    refused = refusal(field, uses, "other")
    print(f"{field}: {uses}, which is not declared: {refused or 'accepted'}")
    assert bool(refused) is (field != "volumes")
    assert not refusal(field, uses, "data")
PYTHON
