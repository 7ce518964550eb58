"""Servers: search across silos as a JSON API and a page. What needs no server is in `silohash.search`."""
