"""Training with silos that hold their own data, each on its own machine."""
