"""Tests, which mirror the packages; `end_to_end/` tests whole systems, `documentation/` the docs."""
