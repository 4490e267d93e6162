"""The documentation site: what mkdocs does not know how to make by itself."""
