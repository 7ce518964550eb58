"""Networks that turn an image or a text into a hash code."""
