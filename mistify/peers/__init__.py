"""Devices that tune together (paper 5): memberships, hints, and correlation measures."""
