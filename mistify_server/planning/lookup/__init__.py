"""Resolution of names in configs: models, data, devices and algorithms."""
