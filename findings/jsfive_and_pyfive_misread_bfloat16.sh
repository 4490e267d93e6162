#!/usr/bin/env bash
# pyfive 1.3.0 and jsfive 0.4.2 read bfloat16 in HDF5 files as float16, and jsfive has nothing for values not written.
#
# Expected: readers of HDF5 take the sizes of exponent and fraction, and the fill value of what was never written, from
# the file, as the library in C does, or refuse what they do not know. HDF5 2.0 has names for bfloat16 and other types.
# Observed: each float of two bytes is read as float16, without a warning: 1, -2 and 300 in bfloat16 become 1.875, -2
# and 3.79. Weights of a network in bfloat16 are other numbers that look plausible. jsfive has no values where a file
# has chunks that were never written, so that sums are NaN, where the C library has the fill value; pyfive refuses to
# read such a data set.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet pyfive==1.3.0 h5py==3.16.0 numpy==2.4.6
npm install --silent --no-audit --no-fund --prefix "$directory" jsfive@0.4.2
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import h5py
import numpy as np
import pyfive

print("pyfive", version("pyfive"), "h5py", version("h5py"))
values = np.float32([1, -2, 300, -400])
bfloat16 = h5py.h5t.IEEE_F32LE.copy()
bfloat16.set_fields(15, 7, 8, 0, 7)  # sign, place and size of the exponent, place and size of the fraction
bfloat16.set_size(2)
bfloat16.set_ebias(127)
with h5py.File("file.h5", "w") as file:
    shape = h5py.h5s.create_simple(values.shape)
    h5py.h5d.create(file.id, b"bfloat16", bfloat16, shape).write(h5py.h5s.ALL, h5py.h5s.ALL, values)
    file["float16"] = values.astype(np.float16)
    partly = file.create_dataset("partly", shape=(6,), dtype="f4", chunks=(2,), fillvalue=5)
    partly[:2] = 1

with h5py.File("file.h5") as file, pyfive.File("file.h5") as read:
    print("bfloat16: the C library", file["bfloat16"][:].tolist(), "pyfive", read["bfloat16"][:].tolist())
    print("partly written: the C library", file["partly"][:].tolist())
    assert file["bfloat16"][:].tolist() == read["float16"][:].tolist() == values.tolist()
    # A bfloat16 is the upper half of a float32.
    halves = (values.view(np.uint32) >> 16).astype(np.uint16)
    assert read["bfloat16"][:].tolist() == halves.view(np.float16).tolist() == [1.875, -2, 3.79296875, -3.890625]
    assert file["partly"][:].tolist() == [1, 1, 5, 5, 5, 5]
    try:
        read["partly"][:]
    except KeyError as error:
        print("partly written: pyfive raises", repr(error))
    else:
        raise AssertionError("pyfive reads what was not written")
PYTHON
cat > run.mjs <<'JAVASCRIPT'
import assert from "node:assert";
import { readFileSync } from "node:fs";
import { File } from "jsfive";

const bytes = readFileSync("file.h5");
const file = new File(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length), "file.h5");
const [bfloat16, float16, partly] = ["bfloat16", "float16", "partly"].map((name) => file.get(name).value);
console.log("jsfive: bfloat16", bfloat16, "partly written", partly);
assert.deepEqual([...float16], [1, -2, 300, -400]);
assert.deepEqual([...bfloat16], [1.875, -2, 3.79296875, -3.890625]);
assert.deepEqual(Array.from({ length: 6 }, (_, place) => partly[place]), [1, 1, ...Array(4).fill(undefined)]);
JAVASCRIPT
node run.mjs
