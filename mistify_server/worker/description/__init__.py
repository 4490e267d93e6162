"""Descriptions in packages for apps: class names and the preprocessing of inputs."""
