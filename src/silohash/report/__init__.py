"""Reports: the tables, the plots, the page and the model card of a run."""
