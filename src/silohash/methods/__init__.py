"""Local and federated methods, and the messages that silos and the server exchange."""
