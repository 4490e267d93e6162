"""PyTorch networks as ONNX files, or converted by litert-torch, in the environment of litert-torch.

`python -m benchmarks.porting.onnx_converters_torch export NAME FREE FIXED` writes ONNX files with a free
batch and with batch 1; `convert NAME TFLITE` writes a `.tflite` file. The weights are the same for both.

torchvision's wheels contain operators for CUDA, with which PyTorch for CPUs cannot load it. No network needs
them, so that a declaration is enough.
"""

import sys
from pathlib import Path

import torch

from benchmarks.porting.onnx_networks import export, network_of

_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
for _name in ("nms", "qnms"):
    _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _convert(name: str, file: Path) -> None:
    import litert_torch  # noqa: PLC0415 - only where it is installed

    network, example = network_of(name, batch=1)
    litert_torch.convert(network, (example,)).export(str(file))


if __name__ == "__main__":
    task, name, *files = sys.argv[1:]
    paths = [Path(file) for file in files]
    if task == "export":
        export(name, paths[0], newer=False)
        export(name, paths[1], newer=False, batch=1)
    else:
        _convert(name, paths[0])
