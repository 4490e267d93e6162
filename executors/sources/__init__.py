"""Source models, by the form that they come in: models of Keras, and graphs whose structure is not known."""
