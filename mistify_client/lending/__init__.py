"""Lending: a helper runs the last blocks of a network for another device (CrowdHMTware III-B1)."""
