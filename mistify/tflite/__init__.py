"""Files of networks, taken apart and put together; a server and a device do both."""
