"""Where tasks run: on worker processes of this machine, or on other machines."""
