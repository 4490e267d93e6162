"""Reading converted networks: operators, weights and costs."""
