"""The networks that turn a picture or a text into a code."""
