"""What the analysis of a model can fail of."""


class UnsupportedLayerError(TypeError):
    """A layer that no handler is registered for, or that its handler cannot treat."""
