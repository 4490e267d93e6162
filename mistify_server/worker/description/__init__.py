"""The descriptions that packages have for apps: the names of classes, and how inputs are prepared."""
