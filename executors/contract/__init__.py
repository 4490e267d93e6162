"""The interface of adaptation algorithms: their methods and the values that they are given (paper 4.2)."""
