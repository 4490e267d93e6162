"""What an adaptation algorithm implements, and what it is given (paper 4.2)."""
