"""Evaluation protocols: which items are included, and how they are split into queries and database."""
