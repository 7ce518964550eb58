"""Archives of items with a picture and a text, and how they are spread over silos."""
