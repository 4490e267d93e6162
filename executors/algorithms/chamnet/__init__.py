"""ChamNet: architectures are searched for with a predictor of accuracy."""
