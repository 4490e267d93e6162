"""Networks without an equivalent in ONNX."""


class NotExportableError(Exception):
    """A part of a network has no equivalent in ONNX; the message says which, and why."""
