#!/usr/bin/env bash
# pnnx 20261020 converts circular padding of PyTorch to padding with zeros for ncnn, and divides sums of pools by other
# numbers at the edge.
#
# Expected: the network for ncnn computes what PyTorch computes, or the conversion says that it does not, as it does for
# the mode "nearest-exact" of `interpolate`.
# Observed: a convolution with `padding_mode="circular"`, as for panoramas and periodic signals, becomes one that pads
# with zeros. An average pool with `ceil_mode=True` and padding, whose last window reaches beyond the padding, divides
# by the size of the window, and PyTorch 2.13.0 by the part of it inside of the padding. Both differ at the edges alone,
# so that shapes and most values are right; there is no message. "reflect" and "replicate" are right, as are pools
# without `ceil_mode`.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet pnnx==20261020 ncnn==1.0.20261020 torch==2.13.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import ncnn
import numpy as np
import torch
from torch import nn

print(*(f"{name} {version(name)}" for name in ("pnnx", "ncnn", "torch")))
torch.manual_seed(0)
inputs = torch.randn(1, 4, 8, 8)


def by_ncnn(layer):
    """Return the outputs of the converted layer, and what pnnx says that sounds like a warning."""
    torch.jit.trace(layer, inputs).save("layer.pt")
    tool = Path(sys.executable).parent / "pnnx"
    command = [tool, "layer.pt", f"inputshape={list(inputs.shape)}".replace(" ", ""), "fp16=0"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    network = ncnn.Net()
    network.opt.use_fp16_storage = network.opt.use_fp16_arithmetic = network.opt.use_fp16_packed = False
    assert network.load_param("layer.ncnn.param") == network.load_model("layer.ncnn.bin") == 0
    extractor = network.create_extractor()
    array = np.ascontiguousarray(inputs[0].numpy())
    extractor.input("in0", ncnn.Mat(array))
    _, outputs = extractor.extract("out0")
    warnings = [line for line in (said.stdout + said.stderr).lower().splitlines() if "support" in line or "warn" in line]
    return np.array(outputs), warnings


for name, layer, same in (
    *(
        (f"convolution with {mode} padding", nn.Conv2d(4, 6, 3, padding=1, padding_mode=mode), mode != "circular")
        for mode in ("zeros", "reflect", "replicate", "circular")
    ),
    *(
        (f"average pool with ceil_mode={ceil}", nn.AvgPool2d(3, 2, padding=1, ceil_mode=ceil), not ceil)
        for ceil in (False, True)
    ),
):
    seen, warnings = by_ncnn(layer.eval())
    right = layer(inputs)[0].detach().numpy()
    error = np.abs(seen - right)
    print(f"{name}: largest error {error.max():.6f}, inside {error[:, 1:-1, 1:-1].max():.6f}, messages {warnings}")
    assert not warnings and error[:, 1:-1, 1:-1].max() < 1e-4
    assert (error.max() < 1e-4) == same
    if "circular" in name:
        zeros = nn.functional.conv2d(inputs, layer.weight, layer.bias, padding=1)[0].detach().numpy()
        np.testing.assert_allclose(seen, zeros, atol=1e-4)
PYTHON
