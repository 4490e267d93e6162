"""The operators of networks, as servers keep them."""

from mistify.jobs.network_graph import INPUT, GraphNode, NetworkGraph


def network_graph(blocks: int) -> NetworkGraph:
    """Return the operators of an int8 network with a skip connection around each block of four operators."""
    nodes = [
        GraphNode(INPUT, None, "image", (), (1, 64, 64, 3), "FLOAT32", 49_152, error=0.0),
        GraphNode("QUANTIZE", 0, "", (0,), (1, 64, 64, 3), "INT8", 12_288, milliseconds=0.01, error=0.003),
        _convolution("stem", 1, 1, 0.01),
    ]
    for block in range(1, blocks + 1):
        skipped = len(nodes) - 1
        for part in ("expansion_with_a_long_name", "depthwise", "projection"):
            last = len(nodes) - 1
            nodes.append(_convolution(f"block_{block}_{part}", last, last, 0.002 * last))
        last = len(nodes) - 1
        error = 0.002 * last + (0.1 if block > blocks // 2 else 0.0)
        name, shape = f"block_{block}_add", (1, 32, 32, 24)
        nodes.append(GraphNode("ADD", last, name, (skipped, last), shape, "INT8", 24_576, error=error))
    last = len(nodes)
    nodes += [
        GraphNode("WHILE", last - 1, "", (last - 1,), (1, 24), "INT8", 24, multiply_adds=None),
        GraphNode(
            "DEQUANTIZE",
            last,
            "",
            (last,),
            (1, 24),
            "FLOAT32",
            96,
            milliseconds=0.01,
            error=0.2,
            output="scores",
        ),
    ]
    return NetworkGraph("main", "pixel-8@int8", tuple(nodes), 64)


def _convolution(layer: str, index: int, read: int, error: float) -> GraphNode:
    return GraphNode(
        "CONV_2D",
        index,
        layer,
        (read,),
        (1, 32, 32, 24),
        "INT8",
        24_576,
        "INT8",
        5_208,
        5_280,
        300_000,
        0.1,
        error,
    )
