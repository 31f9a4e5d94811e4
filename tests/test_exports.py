"""The public names are there, and are all that is promised."""

import importlib

import pytest


@pytest.mark.parametrize("module", ["outcrop.capture", "outcrop.analyze"])
def test_every_public_name_can_be_imported(module):
    package = importlib.import_module(module)
    assert package.__all__ == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__doc__, name


@pytest.mark.parametrize("module", ["outcrop.capture", "outcrop.analyze"])
def test_a_name_that_is_not_there_is_an_attribute_error(module):
    package = importlib.import_module(module)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        package.nothing  # noqa: B018
