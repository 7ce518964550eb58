"""Engines, which carry out the tasks of silos: in this process or in worker processes."""
