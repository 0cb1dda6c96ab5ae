"""What the sources of the lineage claim, each beside what is measured here.

    python -m benchmarks.claims [--output claims.html] [--seeds N] [--rounds N] [--json]

Paths, sequential operations and the length at which attention and recurrence cost the same, as `benchmarks.layer_types`
finds them; loss beyond the trained length by kind of positions; the error of random features and of low rank; what
shared keys save in a decoder. Everything is drawn from seeds; only times depend on the machine.
The numbers are printed (as tables, or with --json as one object) and drawn on a page (--output).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks import approximation, extrapolation, layer_types, page, page_command, shared_keys
from benchmarks.layer_types_page import PAPER, values_of
from t2t_jax.parallel.memory import keep_freed_memory
from t2t_jax.parallel.platform import choose_platform
from t2t_jax.sweeps.forecast import aligned

PATH_LENGTH = 64


def measure(seeds: Sequence[int], rounds: int) -> dict[str, Any]:
    """All of it; every seed takes a model of each kind of positions to train."""
    busy, began = page.busy(), time.monotonic()
    found = {
        "layers": layer_types.measure((32, 64, 128, 256, 512), (64, 128), 3, 32, 4, rounds, (PATH_LENGTH,)),
        "positions": extrapolation.measure(seeds),
        "approximation": approximation.measure(range(10)),
        "shared_keys": shared_keys.measure((64, 256, 1024), rounds),
    }
    facts = page.circumstances() | {"Rounds": str(rounds), "Taken": f"{(time.monotonic() - began) / 60:.1f} min"}
    return {"facts": facts, "warning": busy} | found


def sections(found: dict[str, Any]) -> list[page.Section]:
    """The claims, each with what was measured."""
    return [
        _paths(found["layers"]),
        _crossing(found["layers"]),
        extrapolation.section(found["positions"]),
        *approximation.sections(found["approximation"]),
        shared_keys.section(found["shared_keys"]),
    ]


def _paths(found: dict[str, Any]) -> page.Section:
    longest, d = found["lengths"][-1], found["widths"][0]
    rows = [
        [
            name,
            PAPER[name][1],
            str(values_of(found, "sequential_operations", name, "forward", d=d)[-1]) if name in found["fits"] else "–",
            PAPER[name][2],
            str(points[-1]["length"]),
        ]
        for name, points in found["paths"].items()
    ]
    return page.Section(
        "Short paths, nothing to wait for",
        "Claimed: a signal between any two positions passes one layer of self-attention, and nothing in it waits for "
        "another position, where a recurrent layer goes through them one by one, and a convolution needs a stack of "
        "layers (Vaswani et al. 2017, Table 1). Measured: rounds of the compiled program's loops, and layers until "
        "every position has a derivative by all before it. The page of benchmarks.layer_types has more lengths.",
        tables=[
            page.Table(["layer", "sequential, claimed", f"n = {longest}", "path, claimed", f"n = {PATH_LENGTH}"], rows)
        ],
    )


def _crossing(found: dict[str, Any]) -> page.Section:
    keys = ("by_flops", "by_forward_time", "by_training_time")
    rows = [[f"d = {row['d']}", str(row["d"]), *(str(row[key]) for key in keys)] for row in found["crossings"]]
    return page.Section(
        "Cheaper than recurrence while n is below d",
        "Claimed: self-attention costs n² d and a recurrent layer n d², so they change places where the sequence is "
        "as long as it is wide. Measured: the length from which self-attention with its projections costs more than "
        "a long short-term memory, by the FLOPs of the compiled programs (4 n d² + 2 n² d against 8 n d² meet at n = "
        "2 d) and by time, in which recurrence waits.",
        tables=[page.Table(["", "claimed", "by FLOPs", "by time, forward", "forward and backward"], rows)],
    )


def table(found: dict[str, Any]) -> str:
    """The numbers for people."""
    lines = [f"{label}: {value}" for label, value in found["facts"].items()]
    lines += [found["warning"]] if found["warning"] else []
    for section in sections(found):
        lines += ["", section.title, section.lead]
        for one in section.tables:
            lines.append(aligned([one.columns, *one.rows], right=set(range(1, len(one.columns)))))
        lines += [plot.says for plot in section.plots]
    return "\n".join(lines)


def html(found: dict[str, Any]) -> str:
    """The page."""
    lead = (
        "Sentences from the papers that displaced something, or were to displace it, in our own words, and beside each "
        "what this machine finds with this code. Small models and made-up inputs: they say whether an effect is there, "
        "not how much it weighs in a large model."
    )
    return page.render("The lineage's claims, measured", lead, found["facts"], found["warning"], sections(found))


def main() -> None:
    """Run the script; see the module's text."""
    parser = page_command.parser(__doc__, "claims")
    parser.add_argument(
        "--seeds", type=page_command.at_least_one, default=3, help="models trained of each kind of positions (3)"
    )
    options = parser.parse_args()
    choose_platform()
    keep_freed_memory()
    found = measure(range(options.seeds), options.rounds)
    page_command.deliver(found, options, table, html)


if __name__ == "__main__":
    main()
