"""Search across silos: one query is sent to every silo, and the answers are merged."""
