"""The order in which the operators of a converted network run, and its effect on memory."""
