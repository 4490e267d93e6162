#!/usr/bin/env bash
# protobuf 7.36.2 for Python writes the largest float32 to JSON, and refuses to read it.
#
# Expected: json_format.Parse reads what json_format.MessageToJson has written.
# Observed: the largest number of a field of type float, which often stands for "no limit" or hides a score, is written as
# 3.4028235e+38, and Parse says "Float value too large". The shortest digits of this number are slightly above it, and are
# compared with it in double precision before they are rounded. NumPy reads them as the same number, and so does protobuf
# in text format. Doubles, and floats that are smaller by one step, are read.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet protobuf==7.36.2 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
import google.protobuf
import numpy as np
from google.protobuf import json_format, text_format
from google.protobuf.wrappers_pb2 import DoubleValue, FloatValue

largest = np.finfo(np.float32).max
print("protobuf", google.protobuf.__version__)


def returned(message):
    """Return the value of a message after a trip through JSON, or the error."""
    text = json_format.MessageToJson(message)
    try:
        value = json_format.Parse(text, type(message)()).value
    except json_format.ParseError as error:
        value = str(error)
    print(f"{type(message).__name__}: {text} -> {value}")
    return value


for sign in (1, -1):
    message = FloatValue(value=float(sign * largest))
    assert "Float value too" in returned(message)
    assert np.float32(json_format.MessageToJson(message)) == sign * largest
    assert text_format.Parse(text_format.MessageToString(message), FloatValue()) == message
below = float(np.nextafter(largest, np.float32(0)))
assert returned(FloatValue(value=below)) == below
assert returned(DoubleValue(value=float(np.finfo(np.float64).max))) == np.finfo(np.float64).max
PYTHON
