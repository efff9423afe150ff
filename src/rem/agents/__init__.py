"""Agents: defined in YAML, run on any language model or on none."""
