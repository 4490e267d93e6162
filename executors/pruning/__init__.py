"""Channel pruning: the least important units are cut, and the remaining ones compensate for them."""
