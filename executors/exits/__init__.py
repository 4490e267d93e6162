"""Early exits: heads in a network that answer if they are confident (CrowdHMTware III-A1)."""
