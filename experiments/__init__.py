"""What to run: each file's `get_config()` returns a `t2t_jax.config.Experiment`."""
