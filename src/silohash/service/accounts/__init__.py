"""Accounts of people, tokens of programs, and limits on how often they ask. Nothing here needs a web framework."""
