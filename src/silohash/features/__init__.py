"""From pictures and texts to vectors, without sharing either."""
