"""MorphNet: units that matter least are cut, under structure losses."""
