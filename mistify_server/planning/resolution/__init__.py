"""Looking up what configs name: models, data, devices and algorithms."""
