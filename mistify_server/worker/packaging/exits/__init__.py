"""Early exits of packages: made, chosen and measured."""
