"""The outputs of a network: their objectives and scores."""
