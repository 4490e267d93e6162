"""Errors of the translation of an ONNX graph."""


class UnsupportedNodeError(Exception):
    """A node has an option or an input that is not supported.

    Its message continues a sentence that begins with the node: "has a computed kernel".
    """
