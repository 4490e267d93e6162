"""Errors of the analysis of a model."""


class UnsupportedLayerError(TypeError):
    """A layer that no handler is registered for, or that its handler cannot treat."""
