"""Resolution of the names in configs: models, data, devices and algorithms."""
