"""From text to padded batches."""
