"""Errors of the analysis of a model."""


class UnsupportedLayerError(TypeError):
    """A layer has no registered handler, or its handler does not support its options."""
