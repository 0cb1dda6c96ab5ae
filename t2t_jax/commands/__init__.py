"""What each verb does, from parsed options to an exit status."""

from t2t_jax.parallel.memory import keep_freed_memory
from t2t_jax.parallel.precompile import keep_executables


def settle() -> None:
    """What a process that computes does first."""
    keep_freed_memory()
    keep_executables()
