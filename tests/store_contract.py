"""What every store promises; the tests of a form of store subclass `StoreContract`."""

import pickle
from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outcrop.capture import format as names
from outcrop.capture.errors import DamagedStore
from outcrop.capture.store import ArraySpec, Record, create_store, open_store

STREAM = "train"
ROWS = ("step", "records/n_examples", "examples/index")


def row(path, dims=("step",), shape=(), dtype="int64", fill=-1):
    return ArraySpec(path, dims, shape, dtype, fill)


def block(number, shape, dtype="float32", fill=float("nan")):
    dims = ("step", "example", "position", "feature")[: len(shape) + 1]
    return ArraySpec(f"layers/{number}/output/values", dims, shape, dtype, fill, number=number)


class Writing:
    """A store being written, with the document that its declarations need."""

    def __init__(self, path, **options):
        self.path = Path(path)
        self.store = create_store(self.path, **options)
        self.rows = []
        self.arrays = []

    def document(self, **more):
        stream = {"dimension": "step", "rows": list(self.rows), "arrays": list(self.arrays)}
        return {
            "format": names.NAME,
            "version": names.version_text(),
            "created": "now",
            "streams": {STREAM: stream},
            **more,
        }

    def declare(self, *specs):
        self.rows += [spec.path for spec in specs if spec.number is None]
        for spec in specs:
            if spec.number is not None:
                group = spec.path.rpartition("/")[0]
                self.arrays.append({"number": spec.number, "group": group})
        self.store.declare(STREAM, list(specs), self.document())

    def append(self, step, blocks, **rows):
        self.store.append(STREAM, [Record({"step": step, **rows}, blocks)])

    def close(self):
        self.store.close(self.document(closed="now"))


def values(step, shape=(4, 1, 3), dtype=np.float32):
    """Numbers that tell where they belong."""
    size = int(np.prod(shape))
    return (np.arange(size) + 1000 * step).reshape(shape).astype(dtype)


def read(reader, number=0, extents=None, start=0, stop=None):
    blocks = reader.blocks(STREAM, number)
    stop = reader.length(STREAM) if stop is None else stop
    if extents is None:
        extents = np.tile(blocks.shape[1:], (stop - start, 1))
    return blocks.read(start, stop, np.asarray(extents))


class StoreContract(ABC):
    """The promises. A subclass says the suffix and how to damage a block."""

    suffix: str

    @abstractmethod
    def damage(self, path: Path, what: str) -> None:
        """Damage the values of block array 0: "lose" them, "cut" them, or "flip" a bit."""

    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / f"run{self.suffix}"

    def written(self, path, steps, *, close=True, **options):
        writing = Writing(path, **options)
        writing.declare(row("step"), block(0, (4, 1, 3)))
        for step in range(steps):
            writing.append(step, {0: values(step)})
        if close:
            writing.close()
        return writing

    @pytest.mark.parametrize("close", [True, False])
    @pytest.mark.parametrize("compression", ["zstd", "none"])
    def test_records_come_back_in_the_order_they_went_in(self, path, close, compression):
        writing = self.written(path, 40, close=close, compression=compression)
        reader = open_store(path)
        assert reader.length(STREAM) == 40
        np.testing.assert_array_equal(reader.rows(STREAM)["step"], np.arange(40))
        found = read(reader)
        np.testing.assert_array_equal(found, [values(step) for step in range(40)])
        np.testing.assert_array_equal(read(reader, start=7, stop=9), found[7:9])
        assert reader.state == ("closed" if close else "recording")
        if not close:
            writing.close()

    def test_a_record_without_a_block_reads_as_fill(self, path):
        writing = Writing(path)
        writing.declare(row("step"), block(0, (2, 1, 2)), block(1, (2,), "int16", -7))
        writing.append(0, {0: values(0, (2, 1, 2))})
        writing.append(1, {1: np.array([1, 2], np.int16)})
        writing.close()
        reader = open_store(path)
        found = read(reader, 0, [[2, 1, 2], [0, 0, 0]])
        np.testing.assert_array_equal(found[0], values(0, (2, 1, 2)))
        assert np.isnan(found[1]).all()
        np.testing.assert_array_equal(read(reader, 1, [[0], [2]]), [[-7, -7], [1, 2]])

    def test_an_array_declared_late_is_fill_before(self, path):
        for close in (False, True):
            writing = Writing(path, mode="w" if path.exists() else "x")
            writing.declare(row("step"), block(0, (2, 1, 2)))
            for step in range(20):
                writing.append(step, {0: values(step, (2, 1, 2))})
            late = row("layers/1/output/n_positions", ("step", "example"), (3,))
            writing.declare(block(1, (3, 1, 2)), late)
            writing.append(
                20, {1: values(20, (3, 1, 2))}, **{"layers/1/output/n_positions": [1, 2, 3]}
            )
            if close:
                writing.close()
            reader = open_store(path)
            counts = reader.rows(STREAM)["layers/1/output/n_positions"]
            assert (counts[:20] == -1).all()
            assert counts[20].tolist() == [1, 2, 3]
            extents = np.zeros((21, 3), int)
            extents[20] = (3, 1, 2)
            found = read(reader, 1, extents)
            assert np.isnan(found[:20]).all()
            np.testing.assert_array_equal(found[20], values(20, (3, 1, 2)))
            if not close:
                writing.close()

    @pytest.mark.parametrize("axis", [0, 1, 2])
    def test_arrays_grow(self, path, axis):
        writing = Writing(path)
        writing.declare(
            row("step"), row("examples/index", ("step", "example"), (2,)), block(0, (2, 2, 2))
        )
        shapes = [[2, 2, 2] for _ in range(20)]
        for step, size in zip((5, 9, 17), (5, 3, 4), strict=True):
            shapes[step][axis] = size
        for step, shape in enumerate(shapes):
            index = np.arange(shape[0])
            writing.append(step, {0: values(step, shape)}, **{"examples/index": index})
        live = open_store(path)
        writing.close()
        for reader in (live, open_store(path)):
            found = read(reader, extents=shapes)
            assert found.shape[1:][axis] == 5
            for step, shape in enumerate(shapes):
                inside = tuple(map(slice, shape))
                np.testing.assert_array_equal(found[step][inside], values(step, shape))
                assert np.isnan(found[step]).sum() == found[step].size - np.prod(shape)
            index = reader.rows(STREAM)["examples/index"]
            assert index[0, :2].tolist() == [0, 1]
            assert (index[0, 2:] == -1).all()

    def test_an_empty_record_has_no_values(self, path):
        writing = Writing(path)
        writing.declare(row("step"), block(0, (0, 1, 2)))
        writing.append(0, {0: np.zeros((0, 1, 2), np.float32)})
        writing.append(1, {0: values(1, (3, 1, 2))})
        writing.append(2, {0: np.zeros((0, 1, 2), np.float32)})
        writing.close()
        found = read(open_store(path), extents=[[0, 1, 2], [3, 1, 2], [0, 1, 2]])
        assert np.isnan(found[[0, 2]]).all()
        np.testing.assert_array_equal(found[1], values(1, (3, 1, 2)))

    @pytest.mark.parametrize(
        "dtype", ["float16", "float64", "int8", "int64", "uint8", "uint16", "uint32", ">f4"]
    )
    def test_numbers_of_every_kind_come_back(self, path, dtype):
        kind = np.dtype(dtype).newbyteorder("<")
        writing = Writing(path)
        writing.declare(row("step"), block(0, (2, 1, 3), kind.name, 0))
        writing.append(0, {0: values(0, (2, 1, 3), np.dtype(dtype))})
        writing.close()
        found = read(open_store(path))
        assert found.dtype == kind
        np.testing.assert_array_equal(found[0], values(0, (2, 1, 3), kind))

    def test_floats_of_rows_come_back_to_the_last_bit(self, path):
        numbers = [0.1, 1e-300, float("nan"), float("inf"), -0.0, np.nextafter(1, 2)]
        writing = Writing(path)
        writing.declare(row("step"), row("loss", dtype="float64", fill=float("nan")))
        for step, number in enumerate(numbers):
            writing.append(step, {}, loss=number)
        live = open_store(path).rows(STREAM)["loss"]
        writing.close()
        for found in (live, open_store(path).rows(STREAM)["loss"]):
            np.testing.assert_array_equal(found, numbers)
            assert np.signbit(found[4])

    def test_a_tensor_that_is_not_contiguous_is_written_right(self, path):
        writing = Writing(path)
        writing.declare(row("step"), block(0, (4, 5, 3)))
        turned = values(0, (4, 3, 5)).transpose(0, 2, 1)
        writing.append(0, {0: turned})
        writing.close()
        np.testing.assert_array_equal(read(open_store(path))[0], turned)

    def test_a_reader_can_be_sent_to_another_process(self, path):
        self.written(path, 5)
        blocks = open_store(path).blocks(STREAM, 0)
        again = pickle.loads(pickle.dumps(blocks))
        extents = np.tile((4, 1, 3), (5, 1))
        np.testing.assert_array_equal(again.read(0, 5, extents), blocks.read(0, 5, extents))

    @pytest.mark.parametrize("what", ["lose", "cut", "flip"])
    def test_damage_is_an_error_never_a_number(self, path, what):
        self.written(path, 5)
        self.damage(path, what)
        with pytest.raises(DamagedStore, match=self.place_of(what)):
            read(open_store(path))

    def place_of(self, what):
        """Say what an error about this damage must name."""
        return "layers/0/output/values"

    def test_a_path_that_exists_is_refused(self, path):
        self.written(path, 3)
        with pytest.raises(FileExistsError, match="mode='w'"):
            create_store(path)
        assert open_store(path).length(STREAM) == 3

    def test_a_run_can_be_replaced_when_asked(self, path):
        self.written(path, 3)
        self.written(path, 2, mode="w")
        assert open_store(path).length(STREAM) == 2

    def test_nothing_but_a_run_is_replaced(self, path):
        path.mkdir()
        (path / "thesis.txt").write_text("three years")
        with pytest.raises(FileExistsError, match="nothing was touched"):
            create_store(path, mode="w")
        assert (path / "thesis.txt").read_text() == "three years"

    @pytest.mark.parametrize(
        "options", [{"mode": "r"}, {"compression": "gzip"}, {"fsync": "always"}, {"fsync": -1}]
    )
    def test_an_unknown_word_is_refused_before_anything_is_touched(self, path, options):
        self.written(path, 3)
        word = next(iter(options))
        with pytest.raises(ValueError, match=f"{word}= is .*; got "):
            create_store(path, **{"mode": "w"} | options)
        assert open_store(path).length(STREAM) == 3

    def test_a_link_to_a_run_is_not_replaced(self, path):
        self.written(path, 3)
        link = path.with_name(f"link{self.suffix}")
        link.symlink_to(path)
        with pytest.raises(FileExistsError, match="nothing was touched"):
            create_store(link, mode="w")
        assert open_store(link).length(STREAM) == 3

    def test_a_run_that_is_being_recorded_is_not_replaced(self, path):
        writing = self.written(path, 3, close=False)
        with pytest.raises(FileExistsError, match="being recorded"):
            create_store(path, mode="w")
        writing.append(3, {0: values(3)})
        writing.close()
        assert open_store(path).length(STREAM) == 4

    def test_a_row_may_be_given_in_memory_that_is_used_again(self, path):
        writing = Writing(path)
        writing.declare(row("step"), row("examples/index", ("step", "example"), (2,)))
        index = np.zeros(2, int)
        for step in range(6):
            index[:] = step, 10 * step
            writing.append(step, {}, **{"examples/index": index})
        writing.close()
        found = open_store(path).rows(STREAM)["examples/index"]
        np.testing.assert_array_equal(found, [[step, 10 * step] for step in range(6)])

    def test_a_failed_record_leaves_no_trace(self, path):
        writing = Writing(path)
        writing.declare(row("step"), block(0, (2,)), block(1, (2,)))
        writing.append(0, {0: values(0, (2,)), 1: values(0, (2,))})
        with pytest.raises((KeyError, ValueError, TypeError)):
            writing.append(1, {0: values(1, (2,)), 5: values(1, (2,))})
        writing.append(1, {1: values(2, (2,))})
        writing.close()
        reader = open_store(path)
        assert reader.length(STREAM) == 2
        np.testing.assert_array_equal(read(reader, 1)[1], values(2, (2,)))
        assert np.isnan(self.stock_values(path)[1]).all()

    @abstractmethod
    def stock_values(self, path):
        """Give block array 0 as a stock library reads it from a closed store."""

    @settings(
        deadline=None,
        max_examples=25,
        # Subclasses run it too, with fixtures of their own.
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
    )
    @given(data=st.data())
    def test_whatever_is_written_is_read(self, data, tmp_path_factory):
        path = tmp_path_factory.mktemp("any") / f"run{self.suffix}"
        shapes = data.draw(
            st.lists(
                st.one_of(st.none(), st.tuples(*[st.integers(1, 4)] * 3)), min_size=1, max_size=40
            )
        )
        first = next((shape for shape in shapes if shape), (1, 1, 1))
        writing = Writing(path, compression=data.draw(st.sampled_from(["zstd", "none"])))
        writing.declare(row("step"), block(0, first))
        for step, shape in enumerate(shapes):
            writing.append(step, {} if shape is None else {0: values(step, shape)})
        if data.draw(st.booleans()):
            writing.close()
        reader = open_store(path)
        found = read(reader, extents=[shape or (0, 0, 0) for shape in shapes])
        for step, shape in enumerate(shapes):
            inside = tuple(map(slice, shape or (0, 0, 0)))
            np.testing.assert_array_equal(found[step][inside], values(step, shape or (0, 0, 0)))
            assert np.isnan(found[step]).sum() == found[step].size - np.prod(shape or 0)

    @settings(
        deadline=None,
        max_examples=25,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
        ],
    )
    @given(data=st.data())
    def test_arrays_declared_at_any_time_hold_what_they_were_given(self, data, tmp_path_factory):
        path = tmp_path_factory.mktemp("late") / f"run{self.suffix}"
        n_steps = data.draw(st.integers(1, 40))
        since = [0, *sorted(data.draw(st.lists(st.integers(0, n_steps - 1), max_size=3)))]
        widths = data.draw(st.lists(st.integers(0, 5), min_size=n_steps, max_size=n_steps))
        writing = Writing(path)
        writing.declare(row("step"))
        for step, width in enumerate(widths):
            late = [number for number, first in enumerate(since) if first <= step]
            for number in [number for number in late if since[number] == step]:
                counts = row(f"late/{number}", ("step", "example"), (1,))
                writing.declare(counts, block(number, (1,)))
            rows = {f"late/{number}": np.arange(width) + step for number in late}
            blocks = {number: values(step, (width,)) for number in late if width}
            writing.append(step, blocks, **rows)
        if data.draw(st.booleans()):
            writing.close()
        reader = open_store(path)
        for number, first in enumerate(since):
            given = [width if step >= first else 0 for step, width in enumerate(widths)]
            counts = reader.rows(STREAM)[f"late/{number}"]
            blocks = pickle.loads(pickle.dumps(reader.blocks(STREAM, number)))
            found = blocks.read(0, n_steps, np.array(given)[:, None])
            for step, width in enumerate(given):
                assert counts[step, :width].tolist() == [step + n for n in range(width)]
                assert (counts[step, width:] == -1).all()
                np.testing.assert_array_equal(found[step, :width], values(step, (width,)))
                assert np.isnan(found[step, width:]).all()
