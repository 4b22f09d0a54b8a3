"""Tests of the schema's classes."""
