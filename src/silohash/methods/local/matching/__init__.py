"""Methods that score an image against a text with a number, in place of a code for each: one file per paper."""
