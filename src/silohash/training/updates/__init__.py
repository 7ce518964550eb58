"""What happens to the updates of silos on their way to the server."""
