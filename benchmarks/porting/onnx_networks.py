"""PyTorch networks with random weights, exported as ONNX files, and the ONNX files of Python packages."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.run import MissingDataError

#: Classes of all networks.
CLASSES: Final = 10
_WORDS: Final = 1_000
_OPSET: Final = 17

#: Batch of the example for an exporter that leaves the batch free.
_EXAMPLES: Final = 2


@dataclass(frozen=True)
class TorchNetwork:
    """A PyTorch network.

    Attributes:
        build: Returns the network.
        shape: The shape of an example; integers below 1,000 if it has one axis, otherwise floats.
        package: The package that contains it.
        twin: Its counterpart in `keras.applications`; empty if there is none.
        convolutional: Whether no transposition may be needed.
    """

    build: Callable[[], Any]
    shape: tuple[int, ...]
    package: str = "torchvision"
    twin: str = ""
    convolutional: bool = True


@dataclass(frozen=True)
class PackagedFile:
    """The ONNX file of a Python package.

    Attributes:
        package: The name by which the package is imported.
        file: The file within it.
        sizes: Input -> its sizes without the batch, or the value of a number.
    """

    package: str
    file: str
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The file.

        Raises:
            MissingDataError: The package is not installed, or has no such file.
        """
        spec = find_spec(self.package)
        path = Path(spec.origin or "").parent / self.file if spec is not None else Path()
        if not path.is_file():
            raise MissingDataError(f"no package {self.package} with {self.file} is installed")
        return path


def torchvision(name: str, **options: Any) -> Callable[[], Any]:
    """Return a builder of one of torchvision's networks."""
    return lambda: getattr(import_module("torchvision.models"), name)(
        **{"num_classes": CLASSES, "weights": None, **options}
    )


def timm(name: str, **options: Any) -> Callable[[], Any]:
    """Return a builder of one of timm's networks."""
    return lambda: import_module("timm").create_model(name, num_classes=CLASSES, **options)


def own(name: str, *options: Any) -> Callable[[], Any]:
    """Return a builder of one of the networks of this benchmark."""
    module = "benchmarks.porting.onnx_modules"  # needs PyTorch
    return lambda: getattr(import_module(module), name)(*options, classes=CLASSES)


_IMAGE: Final = (3, 64, 64)
_OCR: Final = (3, 96, 96)

TORCH: Final[Mapping[str, TorchNetwork]] = {
    "ResNet18": TorchNetwork(torchvision("resnet18"), _IMAGE),
    "VGG16": TorchNetwork(own("vgg16"), _IMAGE, twin="VGG16"),
    "MobileNetV2": TorchNetwork(torchvision("mobilenet_v2"), _IMAGE, twin="MobileNetV2"),
    "MobileNetV3Small": TorchNetwork(torchvision("mobilenet_v3_small"), _IMAGE, twin="MobileNetV3Small"),
    "EfficientNetB0": TorchNetwork(torchvision("efficientnet_b0"), _IMAGE, twin="EfficientNetB0"),
    "DenseNet121": TorchNetwork(torchvision("densenet121"), _IMAGE, twin="DenseNet121"),
    "ConvNeXtTiny": TorchNetwork(torchvision("convnext_tiny"), _IMAGE, twin="ConvNeXtTiny"),
    "SqueezeNet": TorchNetwork(torchvision("squeezenet1_1"), (3, 96, 96)),
    "ShuffleNetV2": TorchNetwork(torchvision("shufflenet_v2_x0_5"), _IMAGE, convolutional=False),
    "GoogLeNet": TorchNetwork(torchvision("googlenet", aux_logits=False, init_weights=False), _IMAGE),
    "RegNetY400MF": TorchNetwork(torchvision("regnet_y_400mf"), _IMAGE),
    "LR-ASPP": TorchNetwork(own("segmentation"), _IMAGE),
    "Swin-T": TorchNetwork(torchvision("swin_t"), _IMAGE, convolutional=False),
    "ViT-Ti": TorchNetwork(timm("vit_tiny_patch16_224", img_size=64), _IMAGE, "timm", convolutional=False),
    "MobileViT-XXS": TorchNetwork(timm("mobilevit_xxs"), _IMAGE, "timm", convolutional=False),
    "detector": TorchNetwork(own("Detector"), _IMAGE, "torch", convolutional=False),
    "rare options": TorchNetwork(own("RareOptions"), (3, 32, 32), "torch", convolutional=False),
    "LSTM tagger": TorchNetwork(own("Tagger", "LSTM", _WORDS), (12,), "torch"),
    "GRU tagger": TorchNetwork(own("Tagger", "GRU", _WORDS), (12,), "torch"),
}

PACKAGED: Final[Mapping[str, PackagedFile]] = {
    "magika": PackagedFile("magika", "models/standard_v3_3/model.onnx"),
    "PP-OCR classifier": PackagedFile(
        "rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", {"x": (3, 48, 192)}
    ),
    "PP-OCR detector": PackagedFile("rapidocr", "models/PP-OCRv6_det_small.onnx", {"x": _OCR}),
    "PP-OCR reader": PackagedFile("rapidocr", "models/PP-OCRv6_rec_small.onnx", {"x": (3, 48, 96)}),
    "Silero VAD": PackagedFile(
        "silero_vad", "data/silero_vad.onnx", {"input": (576,), "state": (2, 128), "sr": (16_000,)}
    ),
    "Silero VAD, opset 18": PackagedFile(
        "silero_vad", "data/silero_vad_op18_ifless.onnx", {"input": (576,), "sr": (16_000,)}
    ),
}


def check_installed(network: TorchNetwork) -> None:
    """Import the package of a network, and PyTorch's exporters.

    Raises:
        MissingDataError: One is not installed, or cannot be imported.
    """
    for package in ("torch", "onnxscript", network.package):
        try:
            import_module(package)
        except (ImportError, RuntimeError) as error:  # torchvision for another torch raises the latter
            raise MissingDataError(f"{package} cannot be imported ({error})") from error


def network_of(name: str, batch: int) -> tuple[Any, Any]:
    """Return a network with random weights, always the same ones, and an example of its input.

    Raises:
        MissingDataError: A package is missing.
    """
    known = TORCH[name]
    check_installed(known)
    import torch  # noqa: PLC0415 (optional)

    torch.manual_seed(0)
    network = known.build().eval()
    _randomise(network)
    shape = (batch, *known.shape)
    return network, torch.randn(shape) if len(shape) > 2 else torch.randint(0, _WORDS, shape)


def export(name: str, path: Path, newer: bool, batch: int | None = None) -> None:
    """Write a network to a file.

    Args:
        newer: By the exporter with `dynamo=True`, instead of that with TorchScript.
        batch: The batch size; None leaves it free.

    Raises:
        MissingDataError: A package is missing.
    """
    network, example = network_of(name, batch or _EXAMPLES)
    import torch  # noqa: PLC0415 (optional)

    names = {"input_names": ["input"], "output_names": ["output"]}
    warnings.simplefilter("ignore")  # this process ends after the export
    if newer:
        free = {} if batch else {"dynamic_shapes": ({0: torch.export.Dim("n")},)}
        options = {"external_data": False, "verbose": False}
        torch.onnx.export(network, (example,), path, dynamo=True, **names, **free, **options)
    else:
        axes = {} if batch else {"dynamic_axes": {"input": {0: "n"}, "output": {0: "n"}}}
        torch.onnx.export(network, (example,), path, dynamo=False, opset_version=_OPSET, **names, **axes)


def _randomise(network: Any) -> None:
    """Set random statistics, scales and offsets in place of zeros and ones, which exporters merge."""
    import torch  # noqa: PLC0415 (optional)

    with torch.no_grad():
        for name, values in [*network.named_parameters(), *network.named_buffers()]:
            if values.ndim == 1 and values.is_floating_point():
                if name.endswith(("weight", "running_var")):
                    values.uniform_(0.75, 1.25)
                else:
                    values.normal_(0, 0.1)
