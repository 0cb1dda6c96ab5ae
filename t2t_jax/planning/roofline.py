"""The least time a step can take: each of a device's three resources at its data sheet's peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from t2t_jax.planning.compiled_text import Collective, Products
from t2t_jax.planning.topologies import Topology


@dataclass(frozen=True)
class Roofline:
    """Seconds that one step keeps each resource of a device busy, at its peak."""

    products: float
    memory: float
    collectives: float

    @property
    def overlapped(self) -> float:
        """Seconds of a step if all three were always busy at once: no step is faster."""
        return max(self.products, self.memory, self.collectives)

    @property
    def in_turn(self) -> float:
        """Seconds of a step if one waited for the other, each still at its peak."""
        return self.products + self.memory + self.collectives

    @property
    def bound(self) -> str:
        """The resource that is busy longest."""
        return max(("products", "memory", "collectives"), key=lambda name: getattr(self, name))


def roofline(
    topology: Topology, products: Sequence[Products], memory_traffic: float, collectives: Sequence[Collective]
) -> Roofline:
    """The roofline of one device of `topology`.

    Args:
      products: of one step on one device; each type runs at its own peak.
      memory_traffic: bytes between one device and its memory.
      collectives: of one step; each counts as a ring with the bandwidth that its group has.
    """
    chip = topology.chip
    multiplying = sum(p.flops / chip.peak(p.left, p.right) for p in products)
    sending = sum(c.count * c.sent / topology.bandwidth(c.group) for c in collectives)
    return Roofline(multiplying, memory_traffic / chip.bandwidth, sending)
