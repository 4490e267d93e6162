#!/usr/bin/env bash
# Torch-Pruning 1.6.1 removes the wrong input channels of a layer behind a channel shuffle.
#
# Expected: pruning channels of a convolution removes their weights in the layers that read them, so that the pruned network
# computes what the network computes when these channels are zero.
# Observed: the view, transposition and view of a shuffle, as in ShuffleNet, are taken for operations that keep the order of
# channels. The next layer loses inputs that still exist, and applies the weights of the removed ones to others. Shapes fit,
# there is no warning, and the outputs are unrelated. Without the shuffle, they are equal.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet torch-pruning==1.6.1 torch==2.13.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - <<'PYTHON'
from importlib.metadata import version

import torch
import torch_pruning

PRUNED, GROUPS = [1, 5], 2


class Network(torch.nn.Module):
    def __init__(self, shuffles):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 1)
        self.second = torch.nn.Conv2d(8, 4, 1)
        self.shuffles = shuffles

    def forward(self, x):
        x = self.first(x)
        if self.shuffles:
            batch, channels, height, width = x.shape
            x = x.view(batch, GROUPS, channels // GROUPS, height, width).transpose(1, 2).contiguous()
            x = x.view(batch, channels, height, width)
        return self.second(x)


torch.manual_seed(0)
images = torch.randn(2, 3, 5, 5)
print(*(f"{name} {version(name)}" for name in ("torch-pruning", "torch")))
for shuffles in (False, True):
    network = Network(shuffles).eval()
    with torch.no_grad():
        network.first.weight[PRUNED] = 0
        network.first.bias[PRUNED] = 0
        expected = network(images)
    graph = torch_pruning.DependencyGraph().build_dependency(network, example_inputs=images)
    group = graph.get_pruning_group(network.first, torch_pruning.prune_conv_out_channels, idxs=PRUNED)
    assert graph.check_pruning_group(group)
    group.prune()
    with torch.no_grad():
        pruned = network(images)
    error = float((pruned - expected).abs().max())
    print(f"{'with' if shuffles else 'without'} a shuffle: error {error:.1e}, of values up to {expected.abs().max():.1f}")
    assert pruned.shape == expected.shape and network.second.in_channels == 6
    assert (error < 1e-5) != shuffles
PYTHON
