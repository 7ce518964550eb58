from __future__ import annotations

import inspect

import pytest

from silohash.service.adoption import AdoptingBackend
from silohash.service.backend import Backend
from silohash.service.hub import HubBackend
from silohash.service.local import LocalBackend
from silohash.service.web.monitor import MeasuredBackend


@pytest.mark.parametrize("kind", [HubBackend, LocalBackend, AdoptingBackend, MeasuredBackend])
def test_every_backend_has_the_calls_of_the_interface(kind: type) -> None:
    for name in ("search", "similar", "item", "status"):
        wanted, found = (inspect.signature(vars_of(cls, name)) for cls in (Backend, kind))
        assert [*found.parameters] == [*wanted.parameters], name


def vars_of(cls: type, name: str) -> object:
    return inspect.getattr_static(cls, name)
