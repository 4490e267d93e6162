#!/usr/bin/env bash
# PyTorch 2.13.0 counts too many operations for the training of grouped convolutions, and none for some inference.
#
# Expected: the backward pass of a layer with weights takes twice the operations of its forward pass: as many for the
# gradient of the input, and as many for that of the weights.
# Observed: FlopCounterMode counts the gradient of a grouped convolution's weights as if there were no groups: the
# backward pass of a depthwise convolution of 64 channels is counted 65 times as large as the forward pass, instead of
# twice. Without gradients, MultiheadAttention and TransformerEncoderLayer count as none in evaluation mode, since they
# become one operator that the counter does not know, as does an LSTM. There is no warning. So budgets, utilization and
# comparisons of architectures are wrong, those of MobileNets in training and of transformers in inference above all.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

print("torch", torch.__version__)


def counted(function):
    counter = FlopCounterMode(display=False)
    with counter:
        function()
    return counter.get_total_flops()


for groups in (1, 4, 64):
    layer = nn.Conv2d(64, 64, 3, groups=groups, bias=False)
    inputs = torch.randn(1, 64, 12, 12, requires_grad=True)
    exact = 2 * 64 * (64 // groups) * 9 * 10 * 10
    forward = counted(lambda: layer(inputs))
    outputs = layer(inputs)
    backward = counted(lambda: outputs.sum().backward())
    print(f"{groups} groups: forward {forward / exact:g}, backward {backward / exact:g} times the exact {exact:,}")
    assert forward == exact and backward == (1 + groups) * exact

inputs = torch.randn(1, 10, 16)
for name, layer in (
    ("MultiheadAttention", nn.MultiheadAttention(16, 4, batch_first=True)),
    ("TransformerEncoderLayer", nn.TransformerEncoderLayer(16, 4, batch_first=True)),
    ("LSTM", nn.LSTM(16, 32, batch_first=True)),
):
    layer.eval()
    examples = (inputs, inputs, inputs) if "Attention" in name else (inputs,)
    with torch.no_grad():
        inference = counted(lambda: layer(*examples))
    training = counted(lambda: layer.train()(*examples))
    print(f"{name}: {inference} in evaluation mode, {training} in training mode")
    assert inference == 0 and (training > 0) == (name != "LSTM")
PYTHON
