"""Texture memory: 2-d buffers are read as images, with NumPy's results, and refused where no image can hold them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from opencl_programs import GENERIC, bound, device, lowered, needs_device, run

from stridesmith.backends.errors import CodegenError
from stridesmith.backends.launch import Launch
from stridesmith.backends.opencl.runtime import OpenCLExecutable, compile_opencl
from stridesmith.backends.render.opencl.program import generate
from stridesmith.ir.expr import Broadcast, Buffer, Load, Ramp, Var, binary, const, if_then_else
from stridesmith.ir.stmt import Declare, If, Seq, Stmt, Store, loops
from stridesmith.search.calling.kernel import build
from stridesmith.space.schedule import Schedule
from stridesmith.space.workloads import workload

I, J = Var("i"), Var("j")  # noqa: E741
ROWS, COLUMNS = 6, 16
OUT = Buffer("out", (ROWS * COLUMNS,))
WITH_IMAGES = replace(
    GENERIC, images=True, image_width=8, image_height=8, image_args=2, image_types="float32 float16 int8"
)
DTYPES = ["float32", "float16", "int8", "int16", "int32", "uint8"]


def image(dtype: str = "float32", shape: tuple[int, ...] = (ROWS, COLUMNS), name: str = "image") -> Buffer:
    return Buffer(name, shape, dtype, "global.texture", tuple(range(1, len(shape))))


def read_all(buffer: Buffer, lanes: int, out: Buffer, step: int = 1) -> Stmt:
    """``out[i, j..] = buffer[i, j..]`` in vectors of `lanes`."""
    if lanes == 1:
        return loops([(I, ROWS), (J, COLUMNS)], Store(out, (I * COLUMNS + J,), buffer[I, J]))
    at = Ramp(J * lanes, const(step), lanes)
    place = (Ramp(I * COLUMNS + J * lanes, const(1), lanes),)
    return loops([(I, ROWS), (J, COLUMNS // lanes)], Store(out, place, Load(buffer, (Broadcast(I, lanes), at))))


def data(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(2)
    if dtype.startswith("float"):
        values = rng.standard_normal((ROWS, COLUMNS)).astype(dtype)
        values[0, :3] = (np.nan, np.inf, -0.0)
        return values
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, (ROWS, COLUMNS), dtype, endpoint=True)


@needs_device
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
def test_an_image_gives_the_elements_of_its_buffer(dtype: str, lanes: int) -> None:
    """Every element type that images have, one element at a time and in vectors, special values included."""
    target = device()
    if target is None or dtype not in target.image_types.split():
        pytest.skip(f"no images of {dtype}")
    if 32 * lanes > target.max_vector_bits:
        pytest.skip("the driver computes wrong results with vectors of this length")
    out = replace(OUT, dtype=dtype)
    values = data(dtype)
    result = run(read_all(image(dtype), lanes, out), {image(dtype): values}, out)
    np.testing.assert_array_equal(result.reshape(ROWS, COLUMNS), values)


@needs_device
def test_elements_across_texels_and_lazy_reads() -> None:
    """Strided lanes, lanes that begin inside a texel, columns that a condition guards, and rows by lane."""
    values = data("float32")
    strided = loops(
        [(I, ROWS)],
        Store(OUT, (Ramp(I * 4, const(1), 4),), Load(image(), (Broadcast(I, 4), Ramp(const(1), const(3), 4)))),
    )
    got = run(strided, {image(): values}, OUT)[: ROWS * 4].reshape(ROWS, 4)
    np.testing.assert_array_equal(got, values[:, 1:13:3])
    shifted = Store(OUT, (Ramp(I * 8, const(1), 8),), Load(image(), (I, Ramp(const(3), const(1), 8))))
    got = run(loops([(I, ROWS)], shifted), {image(): values}, OUT)[: ROWS * 8].reshape(ROWS, 8)
    np.testing.assert_array_equal(got, values[:, 3:11])
    guarded = Store(OUT, (I * COLUMNS + J,), if_then_else(J >= 3, image()[I, binary("-", J, 3)], -7.0))
    got = run(loops([(I, ROWS), (J, COLUMNS)], guarded), {image(): values}, OUT).reshape(ROWS, COLUMNS)
    np.testing.assert_array_equal(got[:, 3:], values[:, :-3])
    assert (got[:, :3] == -7).all()
    columns = Store(OUT, (Ramp(J * 4, const(1), 4),), Load(image(), (Ramp(const(1), const(1), 4), Broadcast(J, 4))))
    got = run(loops([(J, COLUMNS)], columns), {image(): values}, OUT)[: COLUMNS * 4].reshape(COLUMNS, 4)
    np.testing.assert_array_equal(got, values[1:5].T)


@needs_device
def test_what_kernels_write_becomes_an_image_before_the_next_reads_it() -> None:
    """A workspace in texture memory is written as linear memory, on every call anew."""
    values = data("float32")
    mid = image(name="mid")
    given = Buffer("given", (ROWS, COLUMNS), axis_separators=(1,))
    first = loops([(I, ROWS), (J, COLUMNS)], Store(mid, (I, J), given[I, J] + 1.0))
    body = Seq((first, read_all(mid, 4, OUT)))
    result = run(body, {given: values}, OUT, workspaces=(mid,))
    np.testing.assert_array_equal(result.reshape(ROWS, COLUMNS), values + np.float32(1))
    launches = generate(lowered(body, given, OUT, workspaces=(mid,)), WITH_IMAGES).launches
    assert [(k.images, k.stale) for k in launches] == [((), ()), ((2,), (2,))]
    assert [Launch.from_json(k.to_json()) for k in launches] == list(launches)


@needs_device
def test_what_a_call_writes_is_the_image_of_the_next_one() -> None:
    """A parameter that one kernel reads as an image and a later one changes."""
    given = image()
    change = loops([(I, ROWS), (J, COLUMNS)], Store(given, (I, J), const(2.0)))
    body = Seq((read_all(given, 4, OUT), change))
    artifact = compile_opencl(lowered(body, given, OUT), device())
    program = OpenCLExecutable(artifact).bind()
    program.write(0, data("float32"))
    for expected in (data("float32"), np.full((ROWS, COLUMNS), 2.0, np.float32)):
        program.run()
        np.testing.assert_array_equal(program.read(1).reshape(ROWS, COLUMNS), expected)
    launches = generate(lowered(body, given, OUT), WITH_IMAGES).launches
    assert [(k.images, k.stale) for k in launches] == [((0,), (0,)), ((), ())]


def test_texels_are_read_whole() -> None:
    """Vectors of whole texels need one read for each, and components of one texel share it."""
    text = generate(lowered(read_all(image(), 8, OUT), image(), OUT), WITH_IMAGES).text
    assert "__read_only image2d_t image" in text and text.count("read_imagef(") == 2
    unrolled = loops([(I, ROWS)], loops([(J, 4)], Store(OUT, (I * 4 + J,), image()[I, J]), "unrolled"))
    text = generate(lowered(unrolled, image(), OUT), WITH_IMAGES).text
    assert text.count("read_imagef(") == 1 and all(f".{c};" in text for c in "xyzw")


def test_a_texel_in_a_condition_is_the_one_that_was_read_before() -> None:
    """``i < 1`` says that i is 0, but the row is named as it is outside, so that its texel is known."""
    first = Store(OUT, (I,), image()[I + 1, const(0)])
    again = If(I < 1, Store(OUT, (I + 8,), image()[I + 1, const(1)]))
    text = generate(lowered(loops([(I, ROWS - 1)], Seq((first, again))), image(), OUT), WITH_IMAGES).text
    assert "if (" in text and text.count("read_imagef(") == 1


def refusal(*buffers: Buffer, target=WITH_IMAGES) -> str:
    stores = [Store(OUT, (I,), Load(b, tuple(const(0) for _ in b.shape))) for b in buffers]
    with pytest.raises(CodegenError) as error:
        generate(lowered(bound(I, 8, "blockIdx.x", Seq(tuple(stores))), *buffers, OUT), target)
    return str(error.value)


def test_images_that_the_device_does_not_have_are_refused() -> None:
    """Conditions (1) to (4) of an image, and the number of images in one kernel."""
    assert "(1)" in refusal(image("float64", (2, 4))) and "(it has float32 float16 int8)" in refusal(image("bool"))
    assert "`device` has no images of float32 (it has none)" in refusal(image(), target=GENERIC)
    assert "(2)" in refusal(image(shape=(8,))) and "(2)" in refusal(image(shape=(2, 2, 4)))
    assert "(3)" in refusal(image(shape=(2, 6))) and "not whole texels of 4" in refusal(image(shape=(2, 6)))
    assert "(4)" in refusal(image(shape=(9, 4))) and "9 x 1 texels exceed 8 x 8" in refusal(image(shape=(1, 36)))
    three = [image(name=name) for name in "xyz"]
    assert "reads 3 images, but `device` takes 2" in refusal(*three)


def test_a_view_of_another_type_is_refused() -> None:
    """An image has one element type."""
    view = Buffer("view", (ROWS, COLUMNS), "int32", axis_separators=(1,), data="image")
    body = Declare(view, loops([(I, ROWS)], Store(replace(OUT, dtype="int32"), (I,), view[I, I])))
    with pytest.raises(CodegenError, match="views the image `image` of float32 as int32"):
        generate(lowered(body, image(), replace(OUT, dtype="int32")), WITH_IMAGES)


def test_a_view_of_another_shape_is_refused() -> None:
    """Its elements lie in other texels."""
    view = Buffer("view", (ROWS // 2, COLUMNS * 2), axis_separators=(1,), data="image")
    body = Declare(view, loops([(I, ROWS // 2)], Store(OUT, (I,), view[I, I])))
    with pytest.raises(CodegenError, match=r"views the image `image` of .* texture memory has one shape"):
        generate(lowered(body, image(), OUT), WITH_IMAGES)


@needs_device
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_a_packed_constant_in_texture_memory(dtype: str) -> None:
    """A schedule packs the second factor of a product into an image; `pack` makes it once."""
    work = workload("matmul", m=13, n=19, k=11, dtype=dtype)
    sch = Schedule(work.func)
    sch.transform_layout("matmul", "b", "lambda k, n: [n // 8, k, AXIS_SEPARATOR, n % 8]", 0, physical_shape=(3, 11, 8))
    sch.set_scope("matmul", "b", "global.texture")
    i, j, _ = sch.get_loops("matmul")
    sch.bind(i, "blockIdx.x")
    sch.vectorize(sch.split(j, [None, 8])[1])
    kernel = build(sch.func, device(), {"b": "constant"})
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, buffer.shape).astype(dtype) for buffer in work.func.buffers[:2])
    expected = next(iter(work.reference({"a": a, "b": b}).values()))
    np.testing.assert_array_equal(kernel(a, b), expected)
    packed = kernel.pack(b=b)
    np.testing.assert_array_equal(packed(a), expected)
    np.testing.assert_array_equal(packed(a), expected)
