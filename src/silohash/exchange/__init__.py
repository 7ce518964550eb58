"""What crosses the wire between silos and server."""
