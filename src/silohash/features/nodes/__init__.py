"""Featurizers that give an item as a set of nodes, such as regions or words, for methods that match them."""
