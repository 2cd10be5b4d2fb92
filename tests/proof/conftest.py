"""Fixtures of these tests."""

from tests.integration.store.cleaning import _django_db_helper

__all__ = ["_django_db_helper"]
