"""Training under differential privacy, and the count of what it releases."""
