"""Lending: helpers run blocks of a network for another device (CrowdHMTware III-B1)."""
