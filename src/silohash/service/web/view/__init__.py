"""What the pages show, as values that the templates only lay out."""
