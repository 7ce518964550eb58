"""Local methods without gradient steps: their parameters are computed in closed form, or from sums over items."""
