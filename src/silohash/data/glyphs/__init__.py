"""The embedded archive of drawn characters."""
