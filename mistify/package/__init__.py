"""What is in a package: its manifest, its weights, and how it is trained."""
