#!/usr/bin/env bash
# s3fs 2026.9.0 returns a whole object if it is asked for an empty range of it.
#
# Expected: `cat_file(path, start, end)` is `cat_file(path)[start:end]`, by which fsspec's limits are defined: bytes 5
# to 5 are none.
# Observed: bytes 5 to 5, and 0 to 0, are the whole object, as are those from -20 to 3 of an object with ten bytes,
# which are its first three. The header is "bytes=5-4", and servers ignore a range whose end is in front of its start
# (RFC 9110, 14.1.1), without an error. `cat_ranges`, by which readers of arrays and columns get many parts at once,
# returns the same: for an empty part, they download everything, and get bytes that belong to other parts. fsspec's file
# systems for local files and memory are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet s3fs==2026.9.0 fsspec==2026.9.0 "moto[s3]==5.2.5" flask==3.1.3 flask-cors==6.0.5
cd "$directory"
export AWS_DEFAULT_REGION=us-east-1
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
from importlib.metadata import version

import fsspec
from moto.server import ThreadedMotoServer

DATA = b"0123456789"

server = ThreadedMotoServer(port=0, verbose=False)
server.start()
endpoint = "http://{}:{}".format(*server.get_host_and_port())
s3 = fsspec.filesystem("s3", key="key", secret="secret", endpoint_url=endpoint)
s3.mkdir("bucket")
places = {
    "s3": (s3, "bucket/object"),
    "file": (fsspec.filesystem("file"), "object"),
    "memory": (fsspec.filesystem("memory"), "/object"),
}
print("s3fs", version("s3fs"), "fsspec", version("fsspec"))
for filesystem, path in places.values():
    filesystem.pipe_file(path, DATA)

for start, end in ((2, 5), (5, 5), (0, 0), (-20, 3)):
    for name, (filesystem, path) in places.items():
        found = filesystem.cat_file(path, start=start, end=end)
        assert filesystem.cat_ranges([path], [start], [end]) == [found]
        print(f"{name}: bytes {start} to {end} are {found}")
        wrong = name == "s3" and (start, end) != (2, 5)
        assert found == (DATA if wrong else DATA[start:end])
server.stop()
PYTHON
