"""The documentation site: additions to mkdocs."""
