"""Errors a user can act on: one plain sentence with the value at fault and what to do."""

__all__ = ["PlanError", "UnsupportedModel"]


class PlanError(ValueError):
    """A layer, a configuration or a budget that the planner refuses, and why."""


class UnsupportedModel(PlanError):
    """A model file that holds something haloconv does not run; names operator, place and reason."""
