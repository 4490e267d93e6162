#!/usr/bin/env bash
# fsspec 2026.9.0 lists other files and other sizes of references than those that can be read.
#
# Expected: the size of a file is the number of its bytes, and `find` lists what is below a folder, down to `maxdepth`,
# as for fsspec's other file systems.
# Observed: the file system "reference", by which Zarr stores read chunks of other files, gives inline data the length
# of its text in the reference file: 23 for "base64:MDEyMzQ1Njc4OQ==", which are ten bytes. `size`, `info` and `du` are
# wrong by a third and more, while `cat` and `open` are right. `find("data/a")` lists the files in "data/ab" and
# "data/a.json" as well, and `maxdepth` has no effect, so that code that goes by `find` gets chunks of other arrays.
# There is no warning; a ZIP file with the same contents is right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet fsspec==2026.9.0 aiohttp==3.14.5
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import base64
import zipfile

import fsspec

print("fsspec", fsspec.__version__)
FILES = {"data/a/0": b"0123456789", "data/a/deep/1": b"01234", "data/ab/0": b"0123", "data/a.json": b"{}"}

references = {name: "base64:" + base64.b64encode(content).decode() for name, content in FILES.items()}
with zipfile.ZipFile("files.zip", "w") as archive:
    for name, content in FILES.items():
        archive.writestr(name, content)
for kind, filesystem in (
    ("reference", fsspec.filesystem("reference", fo={"version": 1, "refs": references})),
    ("zip", fsspec.filesystem("zip", fo="files.zip")),
):
    for name, content in FILES.items():
        assert filesystem.cat_file(name) == content
    sizes = {name: filesystem.size(name) for name in FILES}
    found, shallow = filesystem.find("data/a"), filesystem.find("data/a", maxdepth=1)
    print(f"{kind}: sizes {sizes}, find {found}, with maxdepth=1 {shallow}")
    if kind == "zip":
        assert sizes == {name: len(content) for name, content in FILES.items()}
        assert found == ["data/a/0", "data/a/deep/1"] and shallow == ["data/a/0"]
    else:
        assert sizes == {name: len(text) for name, text in references.items()}
        assert found == shallow == sorted(FILES)
PYTHON
