"""The JSON API and the pages, over any backend."""
