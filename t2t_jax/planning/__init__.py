"""What a training run would cost on accelerators that are not here: compile its step for them and read the result."""
