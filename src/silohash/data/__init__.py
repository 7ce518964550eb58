"""Archives of items, and how they are spread over silos."""
