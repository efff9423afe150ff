"""Approvals: actions of agents that wait for the consent of a person."""
