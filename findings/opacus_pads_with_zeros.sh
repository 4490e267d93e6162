#!/usr/bin/env bash
# Opacus 1.6.0 trains convolutions with reflected or circular padding by the gradients of padding with zeros.
#
# Expected: the gradient of each example, which Opacus clips and adds noise to, is that which PyTorch computes for this
# example alone, for every layer that ModuleValidator accepts.
# Observed: the layers compute their outputs with `padding_mode`, but Opacus's gradients of their weights are those of
# padding with zeros, a third to a half of their norm away from the right ones, without a warning. Likewise, the row of
# an embedding that `padding_idx` keeps as it is gets a gradient, and is trained. GradSampleModule with
# `force_functorch=True` is right.
#
# Exits with 1 if the behaviour has changed.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv "$directory/venv"
"$directory/venv/bin/pip" install --quiet opacus==1.6.0 torch==2.13.0 numpy==2.4.6
cd "$directory"
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import copy

import opacus
import torch
from opacus.grad_sample import GradSampleModule
from opacus.validators import ModuleValidator
from torch import nn

print("opacus", opacus.__version__, "torch", torch.__version__)
torch.manual_seed(0)
images = torch.randn(3, 4, 8, 8)
words = torch.randint(0, 10, (3, 20))
words[:, 0] = 2


def loss(outputs):
    return outputs.square().mean()


def error(layer, examples, **options):
    """Return the largest distance of an example's gradient from PyTorch's, relative to the norm of the latter."""
    assert ModuleValidator.is_valid(nn.Sequential(layer))
    module = GradSampleModule(copy.deepcopy(layer), **options)
    loss(module(examples)).backward()
    errors = []
    for number, example in enumerate(examples):
        layer.zero_grad()
        loss(layer(example[None])).backward()
        right = layer.weight.grad
        errors.append(((module._module.weight.grad_sample[number] - right).norm() / right.norm()).item())
    return max(errors)


for name, layer, examples in (
    *(
        (f"a convolution with padding_mode={mode!r}", nn.Conv2d(4, 6, 3, padding=1, padding_mode=mode), images)
        for mode in ("zeros", "circular", "reflect", "replicate")
    ),
    ("an embedding", nn.Embedding(10, 4), words),
    ("an embedding with padding_idx=2", nn.Embedding(10, 4, padding_idx=2), words),
):
    # PyTorch starts the row of padding_idx with zeros; training may have begun with others.
    layer.weight.data = torch.randn_like(layer.weight)
    by_hooks, by_functorch = error(layer, examples), error(layer, examples, force_functorch=True)
    print(f"{name}: error {by_hooks:.6f}, with force_functorch {by_functorch:.6f}")
    right = name == "an embedding" or "zeros" in name
    assert (by_hooks < 1e-5) == right and by_functorch < 1e-5
    assert right or by_hooks > 0.05
PYTHON
