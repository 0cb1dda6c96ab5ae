"""Plans as a person reads them, and as JSON."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jax.sharding import Mesh

from t2t_jax import config
from t2t_jax.parallel.chips import GIB
from t2t_jax.planning.compiled_text import COLLECTIVES, Products, by_kind
from t2t_jax.planning.plan import DoesNotFit, StepPlan, describe
from t2t_jax.planning.shapes import Workload
from t2t_jax.planning.topologies import Topology

MIB = 2**20
SHORT = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}


def header(experiment: config.Experiment, topology: Topology, workload: Workload, mesh: Mesh | None) -> str:
    """What the plan is about, in a few lines."""
    chip, training = topology.chip, experiment.training
    lines = [
        f"{experiment.name} on {topology.size} x {chip.name} ({topology.name})"
        + (f", mesh {describe(mesh)}" if mesh else "")
        + f", {training.compute_dtype}, accumulation {training.accumulation}"
    ]
    if workload.assumed:
        lines.append(f"Shapes assumed, since no data is prepared. {workload.assumed}")
    else:
        lines.append("Shapes of the prepared data.")
    return "\n".join(_wrapped(line) for line in lines)


def one_mesh(
    experiment: config.Experiment, topology: Topology, workload: Workload, titled: Mapping[str, StepPlan]
) -> str:
    """A mesh's plans side by side, then what the first one, the commonest shape's, means for the whole run."""
    chip, titles, plans = topology.chip, [*titled], [*titled.values()]
    rows: list[tuple[str, list[str]]] = [
        ("", list(titles)),
        ("batch, rows x (source+target)", [str(p.shape) for p in plans]),
        ("share of the steps", [f"{100 * workload.share(p.shape):.1f}%" for p in plans]),
        ("dead rows", [f"{100 * p.dead:.1f}%" for p in plans]),
        (f"memory of a device, GiB (a program may use {chip.memory / GIB:.2f})", []),
        ("  state and batch", [f"{p.memory.arguments / GIB:.2f}" for p in plans]),
        ("  temporaries", [f"{p.memory.temporaries / GIB:.2f}" for p in plans]),
        (f"  program, one of {_used(workload)}", [_or_dash(p.memory.program or None, GIB, 2) for p in plans]),
        ("  peak", [f"{p.memory.peak / GIB:.2f}" for p in plans]),
        ("TFLOP of a step, forward and backward", []),
        ("  model, all devices", [f"{p.model_flops / 1e12:.2f}" for p in plans]),
        ("  compiled products, a device", [f"{sum(q.flops for q in p.products) / 1e12:.3f}" for p in plans]),
        ("  compiler's own count, a device", [_or_dash(p.compiler_flops, 1e12, 3) for p in plans]),
        ("  share of it with a float32 operand", [f"{100 * p.float32_share:.0f}%" for p in plans]),
        ("ms of a step at the data sheet's peaks", []),
        (f"  products, {chip.bfloat16 / 1e12:.0f} TFLOP/s in bfloat16", [_ms(p.roofline.products) for p in plans]),
        (f"  memory, {chip.bandwidth / 1e12:.2f} TB/s", [_ms(p.roofline.memory) for p in plans]),
        (f"  collectives, {_rates(topology)}", [_ms(p.roofline.collectives) for p in plans]),
        ("  all three at once", [_ms(p.roofline.overlapped) for p in plans]),
        ("  one after another", [_ms(p.roofline.in_turn) for p in plans]),
        ("  compiler's own estimate", [_or_dash(p.compiler_seconds, 1e-3, 2) for p in plans]),
        (
            "utilisation (model FLOPs of peak)",
            [_range(utilisation(p, topology), "%", 100) for p in plans],
        ),
    ]
    return "\n".join(
        [_aligned(rows), "", *_contents(plans[0]), "", _whole_run(experiment, topology, workload, plans[0])]
    )


def several_meshes(
    experiment: config.Experiment,
    topology: Topology,
    workload: Workload,
    plans: Mapping[str, tuple[Mesh, StepPlan | DoesNotFit]],
) -> str:
    """Meshes side by side at the commonest shape."""
    chip = topology.chip

    def row(name: str, value: Any, missing: str = "–") -> tuple[str, list[str]]:
        return name, [value(plan) if isinstance(plan, StepPlan) else missing for _, plan in plans.values()]

    def collective(kind: str, plan: StepPlan) -> str:
        calls, size = by_kind(plan.collectives).get(kind, (0, 0))
        return f"{calls:,} / {size / MIB:,.1f}" if calls else "none"

    kinds = [*COLLECTIVES]
    steps = [plan for _, plan in plans.values() if isinstance(plan, StepPlan)]
    for plan in steps:
        kinds += [kind for kind in by_kind(plan.collectives) if kind not in kinds]
    untold = [row("loops of unknown length, counted as one round", lambda p: str(p.loops.count(None)))]
    axes: tuple[str, ...] = max((mesh.axis_names for mesh, _ in plans.values()), key=len)
    rows: list[tuple[str, list[str]]] = [
        ("", list(plans)),
        (f"mesh {' x '.join(axes)}", [" x ".join(map(str, mesh.devices.shape)) for mesh, _ in plans.values()]),
        row("dead rows", lambda p: f"{100 * p.dead:.1f}%"),
        (
            f"memory of a device, GiB (a program may use {chip.memory / GIB:.2f})",
            [_lacking(plan) if isinstance(plan, DoesNotFit) else "" for _, plan in plans.values()],
        ),
        row("  state and batch", lambda p: f"{p.memory.arguments / GIB:.2f}"),
        row("  temporaries", lambda p: f"{p.memory.temporaries / GIB:.2f}"),
        row(f"  program, one of {_used(workload)}", lambda p: _or_dash(p.memory.program or None, GIB, 2)),
        row("  peak", lambda p: f"{p.memory.peak / GIB:.2f}"),
        ("collectives of a step, calls / MiB", []),
        *(row(f"  {kind}", lambda p, kind=kind: collective(kind, p)) for kind in kinds),
        row("attention kernel", lambda p: p.attention.split(":")[0]),
        row("products with a float32 operand", lambda p: f"{100 * p.float32_share:.0f}% of FLOP"),
        *(untold if any(None in plan.loops for plan in steps) else []),
        ("ms of a step at the data sheet's peaks", []),
        row("  products", lambda p: _ms(p.roofline.products)),
        row("  memory", lambda p: _ms(p.roofline.memory)),
        row("  collectives", lambda p: _ms(p.roofline.collectives)),
        row("  all three at once", lambda p: _ms(p.roofline.overlapped)),
        row("  one after another", lambda p: _ms(p.roofline.in_turn)),
        row("  compiler's own estimate", lambda p: _or_dash(p.compiler_seconds, 1e-3, 2)),
        row("utilisation", lambda p: _range(utilisation(p, topology), "%", 100)),
        row("million target tokens/s", lambda p: _range(tokens_per_second(p, workload), "", 1e-6)),
        row(f"time for {experiment.training.num_steps:,} steps", lambda p: _time(days(p, experiment))),
        row("device-hours", lambda p: _range(days(p, experiment), "", 24 * topology.size)),
    ]
    shape = workload.commonest
    note = f"All at the commonest shape, {shape}; ranges go from all three at once to one after another."
    return f"{note}\n\n{_aligned(rows)}"


def as_json(
    experiment: config.Experiment,
    topology: Topology,
    workload: Workload,
    plans: Mapping[str, tuple[Mesh, Sequence[StepPlan | DoesNotFit]]],
) -> dict[str, Any]:
    """Everything the tables say, with plain numbers: bytes, FLOP and seconds."""
    return {
        "experiment": experiment.name,
        "topology": topology.name,
        "devices": topology.size,
        "chip": dataclasses.asdict(topology.chip),
        "compute_dtype": experiment.training.compute_dtype,
        "accumulation": experiment.training.accumulation,
        "shapes_assumed": workload.assumed,
        "meshes": {
            name: {
                "mesh": dict(mesh.shape),
                "steps": [_step_json(step, experiment, topology, workload) for step in steps],
            }
            for name, (mesh, steps) in plans.items()
        },
    }


def utilisation(plan: StepPlan, topology: Topology) -> tuple[float, float]:
    """Model FLOPs over what the devices could do in bfloat16 meanwhile: all at once, one after another."""
    peak = topology.size * topology.chip.bfloat16
    return plan.model_flops / peak / plan.roofline.overlapped, plan.model_flops / peak / plan.roofline.in_turn


def tokens_per_second(plan: StepPlan, workload: Workload) -> tuple[float, float]:
    """Real target tokens a second, likewise."""
    return workload.target_tokens / plan.roofline.overlapped, workload.target_tokens / plan.roofline.in_turn


def days(plan: StepPlan, experiment: config.Experiment) -> tuple[float, float]:
    """Days until the experiment's last step, likewise, if every step takes as long as this one."""
    steps = experiment.training.num_steps / 86_400
    return steps * plan.roofline.overlapped, steps * plan.roofline.in_turn


def _step_json(
    plan: StepPlan | DoesNotFit, experiment: config.Experiment, topology: Topology, workload: Workload
) -> dict[str, Any]:
    if isinstance(plan, DoesNotFit):
        return {"fits": False, "memory_needed": plan.needed}
    line, both = plan.roofline, ("overlapped", "in_turn")
    return {
        "fits": True,
        "shape": plan.shape._asdict(),
        "share_of_steps": workload.share(plan.shape),
        "dead_rows": plan.dead,
        "memory": {**dataclasses.asdict(plan.memory), "peak": plan.memory.peak},
        "flops": {
            "model": plan.model_flops,
            "compiled_products_per_device": sum(p.flops for p in plan.products),
            "compiler_per_device": plan.compiler_flops,
        },
        "collectives": {kind: {"calls": n, "bytes": size} for kind, (n, size) in by_kind(plan.collectives).items()},
        "attention": plan.attention,
        "custom_calls": plan.custom_calls,
        "products": [dataclasses.asdict(p) for p in plan.products],
        "loops": plan.loops,
        "memory_traffic": plan.memory_traffic,
        "seconds": {
            **dataclasses.asdict(line),
            "overlapped": line.overlapped,
            "in_turn": line.in_turn,
            "compiler": plan.compiler_seconds,
        },
        "utilisation": dict(zip(both, utilisation(plan, topology), strict=True)),
        "target_tokens_per_second": dict(zip(both, tokens_per_second(plan, workload), strict=True)),
        "days": dict(zip(both, days(plan, experiment), strict=True)),
        "device_hours": dict(zip(both, (24 * topology.size * d for d in days(plan, experiment)), strict=True)),
        "seconds_to_compile": plan.seconds_to_compile,
    }


def _contents(plan: StepPlan) -> list[str]:
    """What the compiled text of a step holds, in lines."""
    lines = ["The compiled step of the commonest shape"]
    for kind, (calls, size) in by_kind(plan.collectives).items():
        ours = [c for c in plan.collectives if c.kind == kind]
        groups = " and ".join(map(str, sorted({len(c.group) for c in ours})))
        largest = max(ours, key=lambda c: c.bytes)
        lines.append(
            f"  {kind:<18} {calls:>5,} call{'s' * (calls != 1)}, {size / MIB:,.1f} MiB in groups of {groups}; "
            f"the largest {largest.bytes / MIB:,.1f} MiB {SHORT.get(largest.dtype, largest.dtype)}".rstrip()
        )
    absent = [kind for kind in COLLECTIVES if kind not in by_kind(plan.collectives)]
    if absent:
        lines.append(f"  no {', no '.join(absent)}")
    lines.append(f"  attention          {plan.attention}")
    lines += [f"  products           {_product(p)}" for p in plan.products]
    if plan.loops:
        told = (
            f"{count} of {'an unknown number of' if n is None else n} rounds" + " (counted as one)" * (n is None)
            for n, count in collections.Counter(plan.loops).items()
        )
        lines.append(f"  loops              {', '.join(told)}; the compiler's own count takes their bodies once")
    return lines


def _product(p: Products) -> str:
    left, right, result = (SHORT.get(dtype, dtype) for dtype in (p.left, p.right, p.result))
    return f"{p.count:>5,} {left} x {right} → {result}, {p.flops / 1e12:.3f} TFLOP"


def _whole_run(experiment: config.Experiment, topology: Topology, workload: Workload, plan: StepPlan) -> str:
    taken = days(plan, experiment)
    speed = _range(tokens_per_second(plan, workload), " million target tokens/s", 1e-6)
    longest = {"products": "The products take", "memory": "Memory takes", "collectives": "The collectives take"}
    return _wrapped(
        f"{experiment.training.num_steps:,} such steps: {_time(taken)}, "
        f"{_range(taken, ' device-hours', 24 * topology.size)}, {speed}, from all three at once to one after another. "
        f"{longest[plan.roofline.bound]} longest. Nothing was measured: real kernels stay below the peaks."
    )


def _used(workload: Workload) -> int:
    """Shapes that some batch has; each is a program of its own."""
    return sum(count > 0 for count in workload.batches)


def _lacking(failure: DoesNotFit) -> str:
    return "does not fit" if failure.needed is None else f"needs {failure.needed / GIB:.2f}"


def _rates(topology: Topology) -> str:
    chip = topology.chip
    rates = f"{chip.links / 1e9:.0f} GB/s"
    if chip.network is not None and topology.size > topology.per_host:
        rates += f", {chip.network / 1e9:.0f} between hosts"
    return rates


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"


def _or_dash(value: float | None, unit: float, digits: int) -> str:
    return "–" if value is None else f"{value / unit:.{digits}f}"


def _range(ends: Sequence[float], unit: str, factor: float = 1) -> str:
    low, high = sorted(factor * end for end in ends)
    return f"{_short(low)}–{_short(high)}{unit}"


def _time(days: Sequence[float]) -> str:
    """In the unit that suits the longer end."""
    unit, in_a_day = next(
        (u, n) for u, n in ((" min", 1440), (" h", 24), (" days", 1)) if max(days) < 120 / n or n == 1
    )
    return _range(days, unit, in_a_day)


def _short(value: float) -> str:
    """Two or three digits, as people write them."""
    if value >= 1:
        return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def _aligned(rows: Sequence[tuple[str, list[str]]]) -> str:
    first = max(len(name) for name, values in rows if values and any(values))
    columns = max(len(values) for _, values in rows)
    widths = [max(len(values[i]) for _, values in rows if values) for i in range(columns)]
    return "\n".join(
        f"{name:<{first}}  {'  '.join(f'{v:>{w}}' for v, w in zip(values, widths, strict=False))}".rstrip()
        for name, values in rows
    )


def _wrapped(line: str, width: int = 110) -> str:
    words, lines = line.split(), [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word
    return "\n".join(lines)
