"""Tests of the store on real servers."""
