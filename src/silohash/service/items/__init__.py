"""Items that are added, replaced and removed while a silo runs."""
