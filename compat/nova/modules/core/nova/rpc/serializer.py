"""Serializers of arguments and results (Havana): what turns a program's own objects into plain values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Serializer(ABC):
    """Turns what a program passes into what can be sent, and back."""

    @abstractmethod
    def serialize_entity(self, context: Any, entity: Any) -> Any:
        """``entity`` as plain values."""

    @abstractmethod
    def deserialize_entity(self, context: Any, entity: Any) -> Any:
        """Return the object that the plain values ``entity`` stand for."""


class NoOpSerializer(Serializer):
    """Leaves everything as it is."""

    def serialize_entity(self, context: Any, entity: Any) -> Any:
        """``entity`` itself."""
        return entity

    def deserialize_entity(self, context: Any, entity: Any) -> Any:
        """``entity`` itself."""
        return entity
