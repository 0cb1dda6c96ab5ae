"""t2t_jax: "Attention Is All You Need" in JAX and Flax, trained the same on any mesh."""

__version__ = "0.1.0"
