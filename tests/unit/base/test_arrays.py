"""What users hold, read as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from silohash.base.arrays import check_same_rows, enough_memory, given, same_columns, table, whole
from silohash.base.errors import EmptyInput, OrderDiffers, OutOfMemory, OutOfRange, UserError, WrongShape, WrongType

VALUES = np.array([[1.0, 0.0, 2.0], [0.0, -3.0, 4.0]])


def forms():
    """Yield the same table in many forms."""
    torch, pandas, pyarrow = (pytest.importorskip(name) for name in ("torch", "pandas", "pyarrow"))
    sparse = pytest.importorskip("scipy.sparse")
    tensor = torch.tensor(VALUES, dtype=torch.bfloat16, requires_grad=True)
    yield from (VALUES, VALUES.tolist(), tuple(map(tuple, VALUES.tolist())), list(VALUES), VALUES.astype(object))
    yield from (np.asmatrix(VALUES), np.ma.masked_array(VALUES), VALUES.astype(">f4"))
    yield from (tensor, list(tensor), tensor.detach().to_sparse(), torch.nn.Parameter(tensor))
    yield from (sparse.csc_matrix(VALUES), sparse.coo_array(VALUES))
    yield from (pandas.DataFrame(VALUES), pandas.DataFrame(VALUES).convert_dtypes(), pyarrow.array(VALUES.tolist()))


def test_every_form_holds_the_same_table():
    for form in forms():
        found = table(given("codes", form), "Give numbers.")
        assert found.tolist() == VALUES.tolist(), type(form)
        assert type(found) is np.ndarray


def test_elements_of_lists_become_plain_values():
    torch, pandas = pytest.importorskip("torch"), pytest.importorskip("pandas")
    values = [torch.tensor(3), np.int8(4), pandas.Series(["a", "b"]), {"c"}, None, pandas.NA, np.float32(0.5)]
    assert given("labels", values).values == [3, 4, ["a", "b"], {"c"}, None, pandas.NA, 0.5]
    assert given("labels", range(2)).values == [0, 1]
    assert given("labels", {"a": "b"}.keys()).values == given("labels", {1: "a"}.values()).values == ["a"]
    assert given("labels", [{"a": 1}.keys(), range(2)]).values == [["a"], [0, 1]]
    assert given("labels", np.array(["a", None], object)).values == ["a", None]


@pytest.mark.parametrize(
    ("value", "kind", "says"),
    [
        ("ab", WrongType, "str"),
        (b"ab", WrongType, "bytes"),
        ({1, 2}, WrongType, "of type set"),
        ({1: 2}, WrongType, "dict"),
        (iter([1]), WrongType, "list_iterator"),
        (None, WrongType, "NoneType"),
        (3, WrongType, "int"),
        (np.array(3), WrongType, None),
        (np.zeros(2, "i4,f4"), WrongType, r"f0.*f1"),
        (np.ma.masked_array([1, 2], [0, 1]), EmptyInput, None),
    ],
)
def test_what_does_not_have_rows_is_refused(value, kind: type[UserError], says: str | None):
    with pytest.raises(kind, match=says):
        given("codes", value)


def test_an_object_that_cannot_be_converted_is_refused_in_one_sentence():
    class Broken:
        def __array__(self, *_):
            raise ArithmeticError("no\u202ebits")

    with pytest.raises(WrongType, match=r"codes.*ArithmeticError.*no⟨U\+202E⟩bits"):
        given("codes", Broken())


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ([[1, 2], [3]], "rows that differ in length"),
        ([{1, 2}], "rows that are not lists of numbers"),
        (["ab"], "rows that are not lists of numbers"),
        ([1, 2], r"shape \(2,\)"),
        (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
        ([["a", "b"]], "of type <U1"),
        ([[1, None]], "of type NoneType"),
        ([[1, 1j]], "of type complex128"),
        ([[2**70, 1]], "of type int"),
    ],
)
def test_what_is_not_a_table_of_numbers_is_refused_with_the_accepted_forms(value, says):
    with pytest.raises((WrongShape, WrongType), match=f"{says}.* Give numbers"):
        table(given("codes", value), "Give numbers.")


def test_columns_of_frames_are_joined_by_name():
    pandas = pytest.importorskip("pandas")

    def frame(*names):
        return given("/".join(names), pandas.DataFrame([range(len(names))], columns=names))

    order = same_columns(frame("a", "b", "c"), frame("c", "a", "b"))
    assert order is not None
    assert order.tolist() == [1, 2, 0]
    assert same_columns(frame("a", "b"), frame("a", "b")) is None
    assert same_columns(frame("a", "b"), given("x", [[1, 2]])) is None
    assert same_columns(frame("a"), frame("b")) is None
    for other in (frame("a", "c"), frame("a", "a"), frame("a", "b", "c")):
        with pytest.raises(OrderDiffers):
            same_columns(frame("a", "b"), other)
    with pytest.raises(OrderDiffers):
        same_columns(frame("a", "b", "a"), frame("a", "a", "b"))


def test_rows_of_pandas_objects_have_the_same_names():
    pandas = pytest.importorskip("pandas")
    first, second = (given("x", pandas.Series([1, 2], index=index)) for index in ([0, 1], [1, 0]))
    check_same_rows(first, None, given("y", [1, 2]), first)
    with pytest.raises(OrderDiffers):
        check_same_rows(first, given("y", [1, 2]), second)


def test_whole_numbers():
    assert [whole("k", value, 1) for value in (1, np.int8(3), 2**40)] == [1, 3, 2**40]
    for value in (0, -1, 1.0, True, np.True_, "1", None, np.array([1])):
        with pytest.raises(OutOfRange):
            whole("k", value, 1)


def test_a_lack_of_memory_is_a_users_error():
    with pytest.raises(OutOfMemory), enough_memory():
        raise MemoryError
