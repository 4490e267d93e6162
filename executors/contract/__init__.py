"""The interface of adaptation algorithms: their methods and the values passed to them (paper 4.2)."""
