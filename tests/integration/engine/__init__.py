"""Tests of the engine on real servers."""
