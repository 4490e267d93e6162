"""Models of Keras in all their forms, as flat functional models of Keras 3."""
