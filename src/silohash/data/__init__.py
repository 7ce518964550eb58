"""Archives of items with a picture and a text: formats of users, benchmarks, protocols."""
