DROP TABLE eval_scores, eval_cases, eval_runs;
