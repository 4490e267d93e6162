#!/usr/bin/env bash
# MNN 3.6.1 installs an SDK of a logging service with the first `pip` in the PATH, each time its converter starts.
#
# Expected: a converter reads a model and writes a model. What it needs is in the requirements of its package, which are
# NumPy alone, and is installed with it.
# Observed: `mnnconvert` runs `pip install -U` for an SDK that sends records of its use (the size of the model, the
# options), if that is missing: also for `--help`. It goes to the `pip` of the PATH, which need not belong to MNN's own
# environment; when it does not, the next start tries again. In one such environment it installed ten packages, among
# them protobuf 5.29.6, which is too old for onnx 1.23.2 and TensorFlow 2.21.0. It does not ask.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet MNN==3.6.1 numpy==2.4.6
cd "$directory"
# Records how it is called, and installs nothing.
mkdir path
cat > path/pip <<'PIP'
#!/bin/sh
echo "pip $*" >> calls.txt
PIP
chmod +x path/pip
requirements=$(venv/bin/pip show MNN | grep '^Requires:')
echo "MNN $(venv/bin/pip show MNN | grep '^Version:'), $requirements"
[ "$requirements" = "Requires: numpy" ]
for start in first second; do
    rm -f calls.txt
    PATH="$directory/path:$PATH" venv/bin/mnnconvert --help > help.txt 2>&1 || true
    echo "$start start: $(sort -u calls.txt)"
    [ "$(sort -u calls.txt)" = "pip install -U aliyun-log-python-sdk" ]
done
