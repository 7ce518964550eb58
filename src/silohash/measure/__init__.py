"""What a finished run is worth: its figures by evaluation, task and measure."""
