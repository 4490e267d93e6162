"""The resolution at which a network processes its input images."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import keras

from executors.structure.analysis import Structure, with_least
from executors.structure.graph import Graph, Node, Shape, TensorRef
from executors.structure.handlers import handler_of

layers = keras.layers

#: Layers with the same weights at all positions. The weights of other layers must be per channel.
_SLIDING: Final = (
    layers.Conv2D,
    layers.Conv2DTranspose,
    layers.Dense,
    layers.DepthwiseConv2D,
    layers.SeparableConv2D,
)

#: Batch size of a trial run: reshaping for the wrong image size changes the number of examples.
_EXAMPLES: Final = 2


def resolution(graph: Graph) -> float:
    """Return the ratio of a network's internal image height to its input height; 1 without images."""
    image = _image(graph)
    if image is None or (first := _resizing(graph, image)) is None:
        return 1.0
    return float(first.layer.height / (graph.shapes[image][1] or 1))


def at_resolution(structure: Structure, share: float) -> Structure | None:
    """Return the structure of the network with smaller images, by a `Resizing` at its input.

    Inputs, outputs, weights and groups do not change. `narrow` makes the model.

    Args:
        share: The new height and width, as a share of the current ones; below 1.

    Returns:
        None if this is impossible: there are no images, or several inputs of them; they have a variable size,
        or are not floats; an output has their size; a layer is frozen or kept unchanged; or the network
        depends on their size, because it flattens or reshapes them or has weights per position.
    """
    graph = structure.graph
    image = _image(graph)
    if image is None or structure.keeps_positions:
        return None
    smaller = _resized(graph, image, share)
    if smaller is None or any(graph.shapes[index] != smaller.shapes[index] for index in graph.outputs):
        return None
    first, others = smaller.nodes[0], smaller.nodes[1:]
    before = (node for node in graph.nodes if node.name != first.name)
    if not all(_fits(*pair, graph.shapes, smaller.shapes) for pair in zip(before, others, strict=True)):
        return None
    added = structure.channels[image : image + 1] * (len(smaller.shapes) - len(graph.shapes))
    channels = structure.channels + added
    groups = with_least(structure.groups, smaller, channels, structure.rules)
    return replace(structure, graph=smaller, groups=groups, channels=channels)


def _image(graph: Graph) -> int | None:
    """Return the only input of images [n, height, width, channels]."""
    images = [index for index in graph.inputs if len(graph.shapes[index]) == 4]
    if len(images) != 1 or None in graph.shapes[images[0]][1:] or "float" not in graph.dtypes[images[0]]:
        return None
    return images[0]


def _resizing(graph: Graph, image: int) -> Node | None:
    """Return the `Resizing` call through which all other calls read the images, if any."""
    readers = [node for node in graph.nodes if image in node.inputs]
    return readers[0] if len(readers) == 1 and isinstance(readers[0].layer, layers.Resizing) else None


def _resized(graph: Graph, image: int, share: float) -> Graph | None:
    """Return the graph with smaller images; None if a layer does not accept them."""
    first = _resizing(graph, image)
    shapes, dtypes = list(graph.shapes), list(graph.dtypes)
    if first is None:
        looked_at = image
        made, name, settings = len(shapes), f"{graph.inputs[image]}_resizing", {}
        shapes.append(shapes[image])
        dtypes.append(dtypes[image])
        nodes = [node.rewired(lambda tensor: made if tensor == image else tensor) for node in graph.nodes]
    else:
        looked_at = made = first.output
        name, settings = first.name, first.layer.get_config()
        nodes = [node for node in graph.nodes if node is not first]
    height, width = (max(1, round(share * (side or 1))) for side in shapes[looked_at][1:3])
    layer = layers.Resizing(**{**settings, "name": name, "height": height, "width": width})
    nodes.insert(0, Node(name, layer, (TensorRef(image),), {}, (image,), made))
    try:
        for node in nodes:
            shapes[node.output] = _written(node, shapes, dtypes)
    except Exception:  # layers, including users' own, may raise anything for an unsuitable size
        return None
    return replace(graph, shapes=tuple(shapes), dtypes=tuple(dtypes), nodes=tuple(nodes))


def _written(node: Node, shapes: Sequence[Shape], dtypes: Sequence[str]) -> Shape:
    """Return the output shape of a call; dimensions that depend on the trial batch stay free.

    Operations are run, because many derive their output shape from their arguments, not from their inputs.
    """
    is_layer = isinstance(node.layer, layers.Layer)
    make = keras.KerasTensor if is_layer else keras.ops.zeros

    def example(index: int) -> Any:
        return make([_EXAMPLES if size is None else size for size in shapes[index]], dtype=dtypes[index])

    args, kwargs = node.call_arguments(example)
    run = node.layer.compute_output_spec if is_layer else node.layer
    (made,) = keras.tree.flatten(run(*args, **kwargs))
    sizes = zip(shapes[node.output], made.shape, strict=True)
    return tuple(None if was is None and size == _EXAMPLES else size for was, size in sizes)


def _fits(node: Node, smaller: Node, before: tuple[Shape, ...], after: tuple[Shape, ...]) -> bool:
    """Check whether a call keeps its number of channels, has enough positions, and fits its weights.

    A norm of each channel, for example, needs at least two positions. A free dimension, such as the number of
    examples, must stay free.

    Args:
        node: The current call.
        smaller: The same call with smaller images.
        before: Current shapes of the tensors.
        after: Shapes of the tensors with smaller images.
    """
    was, now = before[node.output], after[smaller.output]
    if was[-1:] != now[-1:] or any(side is not None and side < 1 for side in now):
        return False
    if [size is None for size in was] != [size is None for size in now]:
        return False
    handler = handler_of(node.name, node.layer)
    if handler.least_channels(smaller, now) > max(handler.least_channels(node, was), now[-1] or 1):
        return False
    pairs = zip(node.inputs, smaller.inputs, strict=True)
    if isinstance(node.layer, _SLIDING) or all(before[one] == after[new] for one, new in pairs):
        return True
    return all(_of_channels(weight, was[-1]) for weight in getattr(node.layer, "weights", ()))


def _of_channels(weight: Any, channels: int | None) -> bool:
    return tuple(weight.shape) in ((), (channels,))
