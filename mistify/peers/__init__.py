"""Devices that tune together (paper 5): memberships, hints, and how alike devices are."""
