"""TensorFlow graphs rewritten before they are converted: operations that the converter takes apart badly."""
