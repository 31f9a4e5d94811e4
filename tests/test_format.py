"""Keys of names, versions, statuses."""

from hypothesis import given
from hypothesis import strategies as st
from outcrop.capture import format as names
from outcrop.capture.format import HAS_VALUES, MEANINGS, Status, keys

ALLOWED = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-=()[],%~")


@given(st.lists(st.text(max_size=300), unique=True, max_size=30))
def test_keys_are_safe_and_differ_in_any_case(given_names):
    found = keys(given_names)
    assert list(found) == given_names
    assert len({key.lower() for key in found.values()}) == len(given_names)
    for key in found.values():
        assert 0 < len(key.encode()) <= 200
        assert set(key) <= ALLOWED
        assert not key.startswith((".", "__"))
        assert not key.endswith(".")
        assert key.lower() != "zarr.json"


def test_ordinary_names_are_their_own_keys():
    ordinary = ["conv1", "blocks.0.mlp.fc1", "layers-2_norm", "fc1.weight"]
    assert keys(ordinary) == {name: name for name in ordinary}


def test_reserved_and_colliding_names_are_escaped():
    found = keys(["a/b", "a%2Fb", "..", "CON", "norm", "Norm", "NORM", "", "~root"])
    assert len({key.lower() for key in found.values()}) == 9
    assert found["a/b"] == "a%2Fb"
    assert found["a%2Fb"] == "a%252Fb"


def test_every_status_has_a_meaning():
    assert set(MEANINGS) == set(Status)
    assert set(Status) > HAS_VALUES
    assert sorted(Status) == list(range(len(Status)))
    assert names.flag_attributes(Status)["flag_values"] == list(range(len(Status)))
