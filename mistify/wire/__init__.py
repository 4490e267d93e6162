"""Domain objects as protocol buffer messages, and back."""
