"""What packages tell apps: the names of classes, and how inputs are prepared."""
