"""Local methods that learn from the similarity of the inputs, without labels, one file per paper."""
