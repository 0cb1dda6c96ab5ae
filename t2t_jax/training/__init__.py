"""From batches to parameters."""
