"""Keras models in all their forms, as flat functional models of Keras 3."""
