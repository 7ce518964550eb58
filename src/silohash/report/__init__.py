"""What a run says of itself: tables, plots, one page."""
