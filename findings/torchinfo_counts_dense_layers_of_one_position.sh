#!/usr/bin/env bash
# torchinfo 1.8.0 counts the operations of a dense layer for one position of a sequence or image, whatever its length.
#
# Expected: a dense layer that is applied to each position takes one multiplication per weight and position, as
# PyTorch 2.13.0's FlopCounterMode counts, and as torchinfo counts convolutions and recurrent layers: a convolution with
# a kernel of one position is the same computation.
# Observed: `total_mult_adds` counts the weights of a dense layer once per example. The feed-forward layers of a
# transformer with 128 positions count 128 times too little, without a warning, and a network seems to be much cheaper
# than its twin of convolutions, although both take the same operations. Normalization of images is counted once per
# example as well. Layers whose input has no positions are right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet torchinfo==1.8.0 torch==2.13.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import torch
import torchinfo
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

print("torchinfo", torchinfo.__version__, "torch", torch.__version__)
BATCH, FEATURES, HIDDEN = 2, 32, 64


def counted(network, inputs):
    """Return the multiplications that torchinfo counts, and those that PyTorch counts."""
    with FlopCounterMode(display=False) as flops:
        network(inputs)
    return torchinfo.summary(network, input_data=inputs, verbose=0).total_mult_adds, flops.get_total_flops() // 2


def feed_forward(layer):
    return nn.Sequential(layer(FEATURES, HIDDEN), nn.ReLU(), layer(HIDDEN, FEATURES)).eval()


def dense(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def convolution(inputs, outputs):
    return nn.Conv1d(inputs, outputs, 1, bias=False)


for length in (1, 16, 128):
    sequence = torch.randn(BATCH, length, FEATURES)
    by_dense = counted(feed_forward(dense), sequence)
    by_convolutions = counted(feed_forward(convolution), sequence.transpose(1, 2))
    print(f"{length} positions: {by_dense[0]:,} of dense layers, {by_convolutions[0]:,} of convolutions; "
          f"PyTorch: {by_dense[1]:,} and {by_convolutions[1]:,}")
    exact = BATCH * length * 2 * FEATURES * HIDDEN
    assert by_dense[1] == by_convolutions[1] == by_convolutions[0] == exact
    assert by_dense[0] * length == exact
PYTHON
