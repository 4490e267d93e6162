"""Packages in use: inference in LiteRT, branches, versions."""
