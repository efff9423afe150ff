"""Measure retrieval and agents on data sets with known answers."""

from rem.agents.catalog import load_built_in_evaluators
from rem.evals.evaluators import Evaluator
from rem.evals.experiment_report import summarize_run
from rem.evals.experiments import Experiments
from rem.evals.golden_sets import GoldenCase, GoldenSet
from rem.evals.phoenix import PhoenixClient, create_evaluator_from_schema, run_evaluation_experiment
from rem.evals.targets import FunctionTarget

__all__ = [
    "Evaluator",
    "Experiments",
    "FunctionTarget",
    "GoldenCase",
    "GoldenSet",
    "PhoenixClient",
    "create_evaluator_from_schema",
    "load_built_in_evaluators",
    "run_evaluation_experiment",
    "summarize_run",
]
