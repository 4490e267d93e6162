"""Names of layers: those of PyTorch's modules, as far as the file contains them."""

import re
from typing import Final

from mistify.wording import numbered

#: The last part of a parameter's name.
_PARAMETER: Final = re.compile(
    r"\.(weight|kernel|weights|gamma|alpha|w_0|in_proj_weight|weight_ih_l\d+)(_\w+)?$"
)

#: Names that exporters number consecutively.
_NUMBERED: Final = re.compile(r"onnx::.*|_?\d+|val_\d+|_.*|.*/.*|.*:\d+")
_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9_.]+")


class Names:
    """Unique names of layers.

    Args:
        reserved: Names of the network's inputs and outputs.
    """

    def __init__(self, reserved: list[str]) -> None:
        self._taken = set(reserved)

    def unique(self, wanted: str) -> str:
        """Return a name that no other layer has: `conv`, `conv_2`."""
        name = numbered(usable(wanted), self._taken)
        self._taken.add(name)
        return name


def usable(name: str) -> str:
    """Return a name that Keras and LiteRT accept."""
    return _UNUSABLE.sub("_", name).strip("_.") or "layer"


def is_parameter(name: str) -> bool:
    """Check whether a tensor has the name of a module's parameter."""
    return bool(_PARAMETER.search(name))


def of_weight(weight: str, node: str, operator: str) -> str:
    """Return the name of a layer with weights: its module, or the common part of its parameters' names.

    The module comes first: exporters store equal parameters of several modules once, under a single name.

    Args:
        weight: The name of its main initializer, such as `layer1.0.conv1.weight`.
        node: The name of its node, such as `/layer1/layer1.0/conv1/Conv`.
    """
    if module := module_path(node):
        return module
    if weight and not _NUMBERED.fullmatch(weight):
        return _PARAMETER.sub("", weight)
    return node or operator.lower()


def of_node(node: str, operator: str) -> str:
    """Return the name of a layer without weights: its module, and its operator unless the module says it."""
    module, kind = module_path(node), operator.lower()
    if not module:
        return node or kind
    return module if kind in module.rpartition(".")[2].replace("_", "").lower() else f"{module}.{kind}"


def module_path(node: str) -> str:
    """Return the path of a node's PyTorch module: `/layer1/layer1.0/conv1/Conv` is in `layer1.0.conv1`.

    The TorchScript exporter names each module relative to its parent, except for members of a sequence,
    which repeat the name of the sequence.
    """
    path, parent = "", ""
    for part in node.strip("/").split("/")[:-1]:
        repeats = bool(parent) and part.startswith(f"{parent}.")
        path = path[: len(path) - len(parent)] + part if repeats else f"{path}.{part}".lstrip(".")
        parent = part
    return path
