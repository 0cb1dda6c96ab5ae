"""Many searches on few compiled shapes: rows are searched in stages, and leave when they are done.

A stage is a stretch of positions with a cache of one length and a fixed number of rows. Those of a batch that are done
after it are answered; the others wait until there are enough of them to fill the next, with a longer cache and fewer
rows. The shapes that a row passes through depend on its own padded length alone, so its numbers depend neither on the
rows that it meets there, nor on how many they are.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from t2t_jax.decoding.beam import BeamSearch, Hypotheses
from t2t_jax.decoding.sampling import Sampler
from t2t_jax.model import EncoderDecoder
from t2t_jax.parallel import mesh as meshes
from t2t_jax.symbols import PAD_ID
from t2t_jax.training.state import Params

SHORTEST = 16  # positions of the shortest cache that is worth a stage
FEWER = 4  # the later stages have so many times fewer rows than the first


class Member(NamedTuple):
    """A model that takes part in a decision; there is one, or an ensemble."""

    transformer: EncoderDecoder
    params: Params


class Shape(NamedTuple):
    """What rows of one padded length are searched with."""

    source: int  # S
    target: int  # T, most tokens of a hypothesis with its end
    rows: int  # of the first stage


class Stages:
    """Searches rows; see the module's text."""

    def __init__(self, members: Sequence[Member], mesh: jax.sharding.Mesh):
        """The models have their parameters on every device of the mesh, which divides the rows."""
        self._members, self._mesh = members, mesh
        self._placing = meshes.Rows(mesh)
        self._compiled: dict[Any, jax.stages.Compiled] = {}
        self.seconds_compiling = 0.0

    def search(
        self, method: BeamSearch | Sampler, shape: Shape, rows: Iterable[tuple[int, dict[str, np.ndarray]]]
    ) -> Iterator[tuple[int, Hypotheses]]:
        """(place, hypotheses [N, …] in host memory) of every row as they are done.

        Args:
          method: how to search.
          shape: of all rows.
          rows: (place, what there is to search): source [S], limits [], for a sampler lines [], and in all rows or none
            prefix [T].
        """
        ends = stage_ends(shape)
        sizes = [self._filled(shape.rows), *[self._filled(max(1, shape.rows // FEWER))] * (len(ends) - 1)]
        waiting: list[collections.deque[tuple[int, Any]]] = [collections.deque() for _ in ends]

        def advance(stage: int) -> Iterator[tuple[int, Hypotheses]]:
            size = sizes[stage]
            chosen = [waiting[stage].popleft() for _ in range(min(size, len(waiting[stage])))]
            batch = jax.tree.map(lambda *leaves: self._stacked(leaves, size), *(row for _, row in chosen))
            begin = ends[stage - 1] if stage else 0
            params = [member.params for member in self._members]
            found, carried = self._program(method, shape, begin, ends[stage], params, batch)(params, batch)
            found, running = jax.device_get((found, carried["state"].running if carried else np.zeros(size, bool)))
            carried = jax.tree.map(np.asarray, carried) if running.any() else None
            for i, (place, _) in enumerate(chosen):
                if running[i]:
                    waiting[stage + 1].append((place, jax.tree.map(lambda leaf, i=i: leaf[i].copy(), carried)))
                else:
                    yield place, Hypotheses(*(column[i] for column in found))

        for row in rows:
            waiting[0].append(row)
            for stage, size in enumerate(sizes):
                while len(waiting[stage]) >= size:
                    yield from advance(stage)
        for stage in range(len(ends)):
            while waiting[stage]:
                yield from advance(stage)

    def _filled(self, rows: int) -> int:
        return meshes.padded_rows(rows, meshes.row_parts(self._mesh))

    def _stacked(self, leaves: Sequence[np.ndarray], size: int) -> jax.Array:
        """Rows on the devices, filled up with zeros, which are no rows that run."""
        stacked = np.zeros((size, *np.shape(leaves[0])), np.asarray(leaves[0]).dtype)
        np.stack(leaves, out=stacked[: len(leaves)])
        return self._placing.place(stacked, size)

    def _program(self, method: Any, shape: Shape, begin: int, end: int, *given: Any) -> jax.stages.Compiled:
        key = method, shape, end, "prefix" in given[1]
        if key not in self._compiled:
            begun = time.perf_counter()
            program = staged(method, [member.transformer for member in self._members], shape, begin, end)
            # Each device searches for its own rows: nothing of one row depends on another, not even when it is done.
            whole, divided = meshes.on_every_device(self._mesh).spec, meshes.batch_sharding(self._mesh).spec
            alone = jax.shard_map(
                program, mesh=self._mesh, in_specs=(whole, divided), out_specs=divided, check_vma=False
            )
            with jax.default_matmul_precision("highest"):
                self._compiled[key] = jax.jit(alone).lower(*given).compile()
            self.seconds_compiling += time.perf_counter() - begun
        return self._compiled[key]


def stage_ends(shape: Shape) -> list[int]:
    """The position before which each stage ends, which is the length of its cache.

    A translation is about as long as its source, so the first ends there. The rest double, and the last takes all.
    """
    ends, end = [], max(SHORTEST, shape.source)
    while 4 * end < 3 * shape.target:
        ends.append(end)
        end *= 2
    return [*ends, shape.target]


def staged(
    method: BeamSearch | Sampler, transformers: Sequence[EncoderDecoder], shape: Shape, begin: int, end: int
) -> Callable[[Sequence[Params], dict[str, Any]], tuple[Hypotheses, Any]]:
    """The positions from `begin` to before `end`, as a function of parameters and rows.

    It returns the best so far, and what the next stage needs, if there is one.
    """

    def run(params: Sequence[Params], batch: dict[str, Any]) -> tuple[Hypotheses, Any]:
        members = [(transformer, {"params": tree}) for transformer, tree in zip(transformers, params, strict=True)]
        prefix = {"prefix": batch["prefix"]} if "prefix" in batch else {}

        def step(tokens: jax.Array, index: jax.Array, writers: jax.Array, caches: Any) -> tuple[jax.Array, Any]:
            results: list[Any] = [
                transformer.apply(own, tokens, index, writers, cache, method="decode_step")
                for (transformer, own), cache in zip(members, caches, strict=True)
            ]
            logits, grown = zip(*results, strict=True)
            return mean_of(logits), list(grown)

        if begin == 0:
            source, caches = batch["source"], []
            for transformer, own in members:
                memory = transformer.apply(own, source, deterministic=True, method="encode")
                given = memory, source != PAD_ID, method.width, end
                caches.append(transformer.apply(own, *given, method="start_cache"))
            lines = [batch["lines"]] if "lines" in batch else []
            state: Any = method.start(caches, batch["limits"], shape.target, *lines)
        else:
            state = batch["state"]
            state = state._replace(cache=[cache.lengthened(end * method.width) for cache in state.cache])
        state = method.advance(step, state, begin, end, **prefix)
        return method.best(state), ({"state": state, **prefix} if end < shape.target else None)

    return run


def mean_of(logits: Sequence[jax.Array]) -> jax.Array:
    """Logits of the mean of the members' probabilities; those of a single one as they are."""
    if len(logits) == 1:
        return logits[0]
    return jax.nn.logsumexp(jnp.stack([jax.nn.log_softmax(one) for one in logits]), axis=0) - jnp.log(len(logits))
