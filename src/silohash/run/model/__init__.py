"""The saved model of a run, its encoder, and codes and towers for other programs."""
