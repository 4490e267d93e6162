"""Generated from `proto/mistify/v1`: the messages and services of the wire contract."""
