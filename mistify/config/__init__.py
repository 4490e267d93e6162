"""The porting configuration (paper, Figure 3), one module for each of its parts."""
