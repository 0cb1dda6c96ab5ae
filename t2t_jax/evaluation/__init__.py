"""Numbers and pictures of a trained model."""
