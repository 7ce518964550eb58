"""The archive of museums: objects that museums have dedicated to the public domain. Each museum is a silo."""
