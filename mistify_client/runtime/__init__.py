"""Packages in use: inference in LiteRT, options, versions."""
