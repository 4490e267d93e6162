"""The tests, which mirror the packages; whole systems in `end_to_end/`, pages in `documentation/`."""
