"""Python clients of the services."""
