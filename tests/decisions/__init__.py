"""Tests of the decision cores: from the design, without time, tasks or sockets."""
