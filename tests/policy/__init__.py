"""Tests of the policy room; `samples` has what they share."""
