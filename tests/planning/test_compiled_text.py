"""The parser against hand-written pieces of compiled text, in the forms that XLA writes for TPUs, GPUs and CPUs."""

import pytest

from t2t_jax.planning.compiled_text import CompiledText, Products, by_kind


def program(*lines: str, others: str = "") -> CompiledText:
    """A program of eight devices whose entry computation holds `lines`."""
    body = "\n".join(f"  {line}" for line in lines)
    return CompiledText(
        f"HloModule jit_step, is_scheduled=true\n\n{others}\nENTRY %main (p: f32[8]) -> f32[8] {{\n{body}\n}}\n", 8
    )


@pytest.mark.parametrize(
    ("groups", "members"),
    [
        ("replica_groups={{0,2},{1,3},{4,6},{5,7}}", (0, 2)),
        ("replica_groups=[2,4]<=[8]", (0, 1, 2, 3)),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", (0, 2, 4, 6)),
        ("replica_groups=mesh['data'=2,'fsdp'=2,'tensor'=2] {'fsdp'}", (0, 2)),
        ("replica_groups=mesh['data'=2,'fsdp'=2,'tensor'=2] {'data','tensor'}", (0, 1, 4, 5)),
        ("replica_groups=mesh['a'=8] {'a':(2)2}", (0, 2)),
        ("replica_groups={}", tuple(range(8))),
    ],
)
def test_groups_in_every_notation(groups: str, members: tuple[int, ...]) -> None:
    text = program(
        "%p = f32[1024]{0} parameter(0)",
        f"ROOT %r = f32[1024]{{0}} all-reduce(%p), channel_id=1, {groups}, use_global_device_ids=true, to_apply=%add",
    )
    (found,) = text.collectives
    assert found.group == members
    assert found.bytes == 4096
    assert found.sent == pytest.approx(2 * 4096 * (len(members) - 1) / len(members))


def test_bytes_are_those_of_the_whole_array() -> None:
    text = program(
        "%p = bf16[64,16]{1,0} parameter(0)",
        "%g = bf16[512,16]{1,0} all-gather(%p), replica_groups=[1,8]<=[8], dimensions={0}",
        "%s = bf16[64,16]{1,0} reduce-scatter(%g), replica_groups=[1,8]<=[8], dimensions={0}, to_apply=%add",
        "%t = bf16[64,16]{1,0} all-to-all(%s), replica_groups=[1,8]<=[8], dimensions={0}",
        "ROOT %m = bf16[64,16]{1,0} collective-permute(%t), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}",
    )
    whole, part = 512 * 16 * 2, 64 * 16 * 2
    assert by_kind(text.collectives) == {
        "all-gather": (1, whole),
        "reduce-scatter": (1, whole),
        "collective-permute": (1, part),
        "all-to-all": (1, part),
    }
    sent = {c.kind: c.sent for c in text.collectives}
    assert sent["all-gather"] == sent["reduce-scatter"] == whole * 7 / 8
    assert sent["collective-permute"] == part


def test_asynchronous_pairs_count_once() -> None:
    text = program(
        "%p = bf16[100]{0} parameter(0)",
        "%a = ((bf16[100]{0}), bf16[100]{0}) all-reduce-start(%p), replica_groups=mesh['a'=8] {'a'}, to_apply=%add",
        "%b = bf16[100]{0} all-reduce-done(%a)",
        "%c = (bf16[100]{0}, bf16[800]{0}) all-gather-start(%b), replica_groups=[1,8]<=[8], dimensions={0}",
        "ROOT %d = bf16[800]{0} all-gather-done(%c)",
    )
    assert by_kind(text.collectives) == {"all-reduce": (1, 200), "all-gather": (1, 1600)}


def test_a_collective_spread_over_kernels_is_one() -> None:
    gather = "bf16[800]{0} all-gather(%x), channel_id=7, replica_groups=[1,8]<=[8], dimensions={0}"
    others = "".join(
        f"""%{place} (x: bf16[100]) -> (bf16[100], bf16[800]) {{
  %x = bf16[100]{{0}} parameter(0)
  %g = {gather}
  ROOT %c = (bf16[100]{{0}}, bf16[800]{{0}}) custom-call(%g), custom_call_target="AsyncCollective{place.title()}"
}}

"""
        for place in ("start", "async_collective_fusion.1", "done")
    )
    both = "(bf16[100]{0}, bf16[800]{0})"
    own = '"operand_original_start":"2","operand_original_end":"3","output_tuple_original_start":"0"'
    text = program(
        "%p = bf16[100]{0} parameter(0)",
        "%y = f32[5]{0} parameter(1)",
        f"%a = {both} fusion(%p), kind=kCustom, calls=%start",
        "%b = bf16[800]{0} get-tuple-element(%a), index=1",
        "%k = (f32[5]{0}, bf16[100]{0}, bf16[800]{0}) fusion(%p, %b, %y), kind=kCustom, "
        f'calls=%async_collective_fusion.1, backend_config={{{own},"output_tuple_original_end":"0"}}',
        f"ROOT %d = {both} fusion(%p, %b), kind=kCustom, calls=%done",
        others=others,
    )
    assert by_kind(text.collectives) == {"all-gather": (1, 1600)}
    assert text.memory_traffic == (200 + 1600) + (20 + 20)


def test_a_tpu_writes_reduce_scatter_as_a_fusion() -> None:
    """All of them with the same channel."""
    scatter = """%all-reduce-scatter.{n} (x: bf16[800]) -> bf16[100] {{
  %x = bf16[800]{{0}} parameter(0)
  %r = bf16[800]{{0}} all-reduce(%x), channel_id=1, replica_groups={{{{0,1,2,3,4,5,6,7}}}}, to_apply=%add
  ROOT %s = bf16[100]{{0}} dynamic-slice(%r, %x), dynamic_slice_sizes={{100}}
}}

"""
    text = program(
        "%p = bf16[800]{0} parameter(0)",
        "%a = bf16[100]{0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.1",
        "%b = bf16[100]{0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.2",
        others=scatter.format(n=1) + scatter.format(n=2),
    )
    assert by_kind(text.collectives) == {"reduce-scatter": (2, 3200)}


def test_several_arrays_in_one_call_and_what_a_tpu_rounds_on_the_way() -> None:
    text = program(
        "%p = f32[10]{0:T(128)} parameter(0)",
        "%q = f32[20]{0:T(128)S(1)} parameter(1)",
        "ROOT %r = (bf16[10]{0:T(1024)(128)(2,1)S(1)}, /*index=1*/bf16[20]{0:T(1024)}) all-reduce(%p, %q), "
        "replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add",
    )
    (found,) = text.collectives
    assert (found.dtype, found.bytes) == ("bf16", 60)


def test_one_device_sends_nothing() -> None:
    text = program(
        "%p = f32[8]{0} parameter(0)", "ROOT %r = f32[8]{0} all-reduce(%p), replica_groups={{0},{1}}, to_apply=%a"
    )
    assert text.collectives == []


LOOP = """%body (b: (s32[], f32[4])) -> (s32[], f32[4]) {
  %b = (s32[], f32[4]{0}) parameter(0)
  %x = f32[4]{0} get-tuple-element(%b), index=1
  %y = f32[4]{0} all-reduce(%x), replica_groups={{0,1},{2,3},{4,5},{6,7}}, to_apply=%add
  ROOT %t = (s32[], f32[4]{0}) tuple(%x, %y)
}

%condition (c: (s32[], f32[4])) -> pred[] {
  ROOT %c = (s32[], f32[4]{0}) parameter(0)
}
"""


def test_a_loop_counts_its_rounds() -> None:
    line = "%w = (s32[], f32[4]{0}) while(%p), condition=%condition, body=%body"
    known = program(
        "%p = (s32[], f32[4]{0}) parameter(0)", line + ', backend_config={"known_trip_count":{"n":"5"}}', others=LOOP
    )
    assert known.loops == [5]
    assert by_kind(known.collectives) == {"all-reduce": (5, 80)}
    assert known.memory_traffic == 5 * 2 * 16
    unknown = program("%p = (s32[], f32[4]{0}) parameter(0)", line, others=LOOP)
    assert unknown.loops == [None]
    assert by_kind(unknown.collectives) == {"all-reduce": (1, 16)}


COUNTED = """%body (b: (f32[4], u32[])) -> (f32[4], u32[]) {{
  %two = u32[] constant(2)
  %b = (f32[4]{{0}}, u32[]{{:T(128)}}) parameter(0)
  %x = f32[4]{{0}} get-tuple-element(%b), index=0
  %i = u32[] get-tuple-element(%b), index=1
  %y = f32[4]{{0}} collective-permute(%x), source_target_pairs={{{{0,1}},{{1,0}}}}
  %next = u32[] {step}
  ROOT %t = (f32[4]{{0}}, u32[]) tuple(%y, %next)
}}

%condition (c: (f32[4], u32[])) -> pred[] {{
  %end = u32[]{{:T(128)}} constant({end})
  %c = (f32[4]{{0}}, u32[]) parameter(0)
  %n = u32[] get-tuple-element(%c), index=1
  ROOT %less = pred[]{{:T(512)}} compare({sides}), direction={direction}
}}
"""


@pytest.mark.parametrize(
    ("changes", "rounds"),
    [
        ({}, 2),
        ({"end": 5}, 3),
        ({"end": 1}, 1),
        ({"end": 0}, 0),
        ({"step": "multiply(%i, %two)"}, None),
        ({"step": "add(%two, %two)"}, None),
        ({"step": "add(%i, %i)"}, None),
        ({"sides": "%end, %n"}, None),
        ({"direction": "NE"}, None),
    ],
)
def test_a_loop_that_counts_from_constant_to_constant_tells_its_rounds(changes: dict, rounds: int | None) -> None:
    """As a TPU's compiler writes a product that is spread over a ring of devices: it notes no number of rounds."""
    parts = {"end": 4, "step": "add(%i, %two)", "sides": "%n, %end", "direction": "LT"} | changes
    text = program(
        "%p = f32[4]{0} parameter(0)",
        "%zero = u32[]{:T(128)} constant(0)",
        "%begin = u32[]{:T(128)} copy(%zero)",
        "%both = (f32[4]{0}, u32[]) tuple(%p, %begin)",
        "ROOT %w = (f32[4]{0}, u32[]) while(%both), condition=%condition, body=%body",
        others=COUNTED.format(**parts),
    )
    assert text.loops == [rounds]
    calls = 1 if rounds is None else rounds
    assert by_kind(text.collectives) == ({"collective-permute": (calls, calls * 16)} if calls else {})


def test_products_by_type_with_their_flops() -> None:
    inside = """%fused (a: bf16[3,5], b: bf16[5,7]) -> f32[3,7] {
  %a = bf16[3,5]{1,0} parameter(0)
  %b = bf16[5,7]{1,0} parameter(1)
  ROOT %d = f32[3,7]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    text = program(
        "%p = bf16[3,5]{1,0} parameter(0)",
        "%q = bf16[5,7]{1,0} parameter(1)",
        "%f = f32[3,7]{1,0} fusion(%p, %q), kind=kOutput, calls=%fused",
        '%g = (bf16[3,7]{1,0}, s8[4]{0}) custom-call(%p, %q), custom_call_target="__cublas$gemm", backend_config='
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],'
        '"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[]}}}',
        others=inside,
    )
    assert text.products == [
        Products("bf16", "bf16", "f32", 1, 2 * 3 * 5 * 7),
        Products("bf16", "bf16", "bf16", 1, 2 * 3 * 5 * 7),
    ]
    assert text.custom_calls == {"__cublas$gemm": 1}


def test_products_that_a_tpu_writes_as_convolutions() -> None:
    """[98, 32, 512] times [512, 8, 64]: the heads are a window of 8 over one element, padded by 7 on both sides."""
    text = program(
        "%x = bf16[98,32,512,1]{2,1,3,0} parameter(0)",
        "%w = bf16[512,8,64,1]{0,2,1,3} parameter(1)",
        "ROOT %c = bf16[98,32,8,64]{3,1,2,0} convolution(%x, %w), window={size=1x8 pad=0_0x7_7 rhs_reversal=0x1}, "
        "dim_labels=0bf1_i1o0->0b1f, operand_precision={highest,highest}",
    )
    (product,) = text.products
    assert product.flops == 2 * 98 * 32 * 512 * 8 * 64


def test_kernels_of_attention_are_named() -> None:
    plain = program("%p = f32[8]{0} parameter(0)")
    assert plain.attention.startswith("XLA's own")
    fused = program(
        "%p = bf16[8]{0} parameter(0)",
        '%a = bf16[8]{0} custom-call(%p), custom_call_target="__cudnn$fmhaSoftmax"',
        '%b = bf16[8]{0} custom-call(%a), custom_call_target="__cudnn$fmhaSoftmaxBackward"',
    )
    assert fused.attention == "cuDNN fused attention (2 calls)"


def test_traffic_is_what_kernels_read_and_write_in_main_memory() -> None:
    rows = """%looked (t: f32[1000,16], i: s32[4]) -> f32[4,16] {
  %t = f32[1000,16]{1,0} parameter(0)
  %i = s32[4]{0} parameter(1)
  ROOT %g = f32[4,16]{1,0} gather(%t, %i), offset_dims={1}, collapsed_slice_dims={0}, slice_sizes={1,16}
}
"""
    text = program(
        "%t = f32[1000,16]{1,0} parameter(0)",
        "%i = s32[4]{0} parameter(1)",
        "%f = f32[4,16]{1,0} fusion(%t, %i), kind=kLoop, calls=%looked",  # 4 rows in, 4 rows out, 4 indices
        "%v = f32[4,16]{1,0:T(8,128)S(1)} negate(%f)",  # out into a faster memory
        "%s = (f32[4,16]{1,0:T(8,128)S(1)}, f32[4,16]{1,0}, u32[]{:S(2)}) copy-start(%v)",  # and back
        "ROOT %d = f32[4,16]{1,0} copy-done(%s)",
        others=rows,
    )
    assert text.memory_traffic == (256 + 256 + 16) + 256 + 256
