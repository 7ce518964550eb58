"""The archive of icons: ten libraries of icons and emoji, each of which is a silo."""
