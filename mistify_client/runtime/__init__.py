"""Running packages in LiteRT: inference, branches, versions."""
