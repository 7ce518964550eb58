"""Messages between the silos and the server."""
