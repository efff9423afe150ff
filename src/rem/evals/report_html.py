"""Write the report of a run as one HTML file: no scripts, nothing from other servers, plots as inline SVG.

Outputs of models are untrusted, so every text is escaped, and a policy in the page forbids everything but its styles.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import orjson

from rem.agents.expressions import Score
from rem.evals.experiment_report import RunComparison, RunSummary, ScoreFigures, list_values, passes
from rem.evals.experiment_store import StoredCase

MAX_SHOWN_CHARS = 2_000
MAX_SHOWN_CASES = 2_000
BINS = 10
PLOT_WIDTH, PLOT_HEIGHT = 360, 120
_GOOD, _BAD, _NEUTRAL, _BEFORE = "#2e7d32", "#c62828", "#5c6bc0", "#b0b4d0"
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: #c62828; font-weight: 600; }
.good { color: #2e7d32; }
.plots { display: flex; flex-wrap: wrap; gap: 1.5rem; }
figure { margin: 0; }
figcaption { font-size: .9rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .2rem 0; font-size: .85rem; }
svg text { font: 10px system-ui, sans-serif; fill: currentColor; }
details { margin: .3rem 0; }
"""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def render_report(
    summary: RunSummary,
    cases: Sequence[StoredCase],
    comparison: RunComparison | None = None,
    baseline_cases: Sequence[StoredCase] = (),
) -> str:
    """Return the page of a run; with a comparison, beside its baseline."""
    run = summary.run
    sections = [
        f"<h1>{escape(run.label)}</h1>",
        _render_facts(summary),
        _render_scores(summary, comparison),
        "" if comparison is None else _render_comparison(comparison),
        "<h2>Distribution</h2>",
        '<div class="plots">',
        *(_render_histogram(figures, cases, baseline_cases) for figures in summary.scores),
        "</div>",
        "<h2>Scores by case</h2>",
        '<div class="plots">',
        *(_render_case_plot(figures, cases) for figures in summary.scores),
        "</div>",
        _render_cases(cases),
    ]
    return _PAGE.format(title=escape(run.label), style=_STYLE, body="\n".join(sections))


def _render_facts(summary: RunSummary) -> str:
    run = summary.run
    rate = "no evaluator decides" if summary.pass_rate is None else f"{summary.passed} of {summary.judged}"
    facts = {
        "golden set": run.golden_set,
        run.target["kind"]: run.target_name,
        "started": f"{run.created_at:%Y-%m-%d %H:%M} UTC",
        "state": "complete" if summary.is_complete else f"{summary.outputs} of {summary.cases} cases have run",
        "passed": rate,
        "errors": summary.errors + summary.evaluator_errors,
        "seconds (median, p95)": f"{_number(summary.seconds_p50)}, {_number(summary.seconds_p95)}",
        "seed": run.seed,
        "versions": orjson.dumps(run.versions).decode(),
    }
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    return f"<table>{rows}</table>"


def _render_scores(summary: RunSummary, comparison: RunComparison | None) -> str:
    before = {} if comparison is None else {change.label: change for change in comparison.changes}
    rows = []
    for figures in summary.scores:
        cells = [figures.mean, figures.minimum, figures.maximum]
        change = before.get(figures.label)
        difference = "" if change is None else f"{change.difference:+.3f}"
        style = "number bad" if change is not None and change.is_regression else "number"
        rows.append(
            f"<tr><td>{escape(figures.evaluator)}</td><td>{escape(figures.score)}</td>"
            + "".join(f'<td class="number">{_number(value)}</td>' for value in cells)
            + f'<td class="number">{figures.cases}</td><td class="{style}">{difference}</td></tr>'
        )
    head = (
        "<tr><th>evaluator</th><th>score</th><th>mean</th><th>least</th><th>most</th><th>cases</th><th>change</th></tr>"
    )
    return f"<h2>Scores</h2><table>{head}{''.join(rows)}</table>"


def _render_comparison(comparison: RunComparison) -> str:
    rows = "".join(
        f"<tr><td>{escape(change.label)}</td><td class='number'>{_number(change.before)}</td>"
        f"<td class='number'>{_number(change.after)}</td>"
        f"<td class='number{' bad' if change.is_regression else ''}'>{change.difference:+.3f}</td></tr>"
        for change in comparison.changes
    )
    lists = [
        ("Cases that passed before and do not now", comparison.newly_failed),
        ("Cases that pass now and did not before", comparison.newly_passed),
        ("What changed", comparison.changed_versions),
    ]
    texts = "".join(f"<p>{label}: {escape(', '.join(names))}</p>" for label, names in lists if names)
    baseline, count = escape(comparison.baseline.label), comparison.common_cases
    head = "<tr><th>figure</th><th>before</th><th>now</th><th>change</th></tr>"
    return f"<h2>Against {baseline}, over {count} common cases</h2><table>{head}{rows}</table>{texts}"


def _render_histogram(figures: ScoreFigures, cases: Sequence[StoredCase], baseline_cases: Sequence[StoredCase]) -> str:
    """Return how the values of a score are distributed; the baseline as narrow bars behind them."""
    values = list_values(cases, figures.evaluator, figures.score)
    earlier = list_values(baseline_cases, figures.evaluator, figures.score)
    low, high = _get_range([*values, *earlier])
    counts, before = _count_bins(values, low, high), _count_bins(earlier, low, high)
    highest = max(*counts, *before, 1)
    width = PLOT_WIDTH / BINS
    bars = []
    for position in range(BINS):
        for count, color, share in ((before[position], _BEFORE, 0.9), (counts[position], _NEUTRAL, 0.6)):
            height = PLOT_HEIGHT * count / highest
            left = position * width + width * (1 - share) / 2
            bars.append(
                f'<rect x="{left:.1f}" y="{PLOT_HEIGHT - height:.1f}" width="{width * share:.1f}" '
                f'height="{height:.1f}" fill="{color}"><title>{count} cases</title></rect>'
            )
    labels = _render_axis(low, high)
    return _render_figure(f"{figures.label}: mean {_number(figures.mean)}", "".join(bars) + labels)


def _render_case_plot(figures: ScoreFigures, cases: Sequence[StoredCase]) -> str:
    """Return one dot for each case in its order, so that a group of bad cases can be seen."""
    judged = [case for case in cases if figures.evaluator in case.judgements]
    values = [(case, case.judgements[figures.evaluator].scores.get(figures.score)) for case in judged]
    dots = [(case, float(value)) for case, value in values if value is not None]
    low, high = _get_range([value for _, value in dots])
    shapes = []
    for position, (case, value) in enumerate(dots):
        x = PLOT_WIDTH * (position + 0.5) / max(len(dots), 1)
        y = PLOT_HEIGHT - PLOT_HEIGHT * (value - low) / (high - low)
        verdict = passes(case)
        color = _NEUTRAL if verdict is None else _GOOD if verdict else _BAD
        title = escape(f"{case.case.id}: {value:g}")
        shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"><title>{title}</title></circle>')
    labels = (
        f'<text x="0" y="{PLOT_HEIGHT + 12}">first case</text>'
        f'<text x="{PLOT_WIDTH}" y="{PLOT_HEIGHT + 12}" text-anchor="end">last case</text>'
    )
    return _render_figure(figures.label, "".join(shapes) + labels)


def _render_figure(caption: str, content: str) -> str:
    text = escape(caption)
    return (
        f'<figure><svg role="img" aria-label="{text}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT + 16}" '
        f'viewBox="0 -4 {PLOT_WIDTH} {PLOT_HEIGHT + 20}">'
        f'<line x1="0" y1="{PLOT_HEIGHT}" x2="{PLOT_WIDTH}" y2="{PLOT_HEIGHT}" stroke="#888"/>{content}</svg>'
        f"<figcaption>{text}</figcaption></figure>"
    )


def _render_axis(low: float, high: float) -> str:
    return (
        f'<text x="0" y="{PLOT_HEIGHT + 12}">{low:g}</text>'
        f'<text x="{PLOT_WIDTH}" y="{PLOT_HEIGHT + 12}" text-anchor="end">{high:g}</text>'
    )


def _render_cases(cases: Sequence[StoredCase]) -> str:
    # What needs attention comes first.
    ordered = sorted(cases, key=lambda case: (passes(case) is not False, case.position))
    shown = ordered[:MAX_SHOWN_CASES]
    rest = len(ordered) - len(shown)
    more = f"<p>{rest} more cases are in the files of the run.</p>" if rest else ""
    return "<h2>Cases</h2>" + "".join(_render_case(case) for case in shown) + more


def _render_case(case: StoredCase) -> str:
    verdict = passes(case)
    state, style = {True: ("passed", "good"), False: ("failed", "bad"), None: ("", "")}[verdict]
    if case.ended_at is None:
        state = "not run"
    label, beginning = escape(case.case.id), escape(_shorten(case.case.text, 100))
    head = f'<summary>{label} <span class="{style}">{state}</span> {beginning}</summary>'
    parts = {
        "input": case.case.input,
        "reference": case.case.reference,
        "output": case.output.value,
        "error": case.error,
    }
    body = "".join(
        f"<b>{name}</b><pre>{escape(_format(value))}</pre>" for name, value in parts.items() if value is not None
    )
    return f"<details>{head}{body}{''.join(_render_judgements(case))}</details>"


def _render_judgements(case: StoredCase) -> Iterator[str]:
    for name, judgement in case.judgements.items():
        scores = ", ".join(f"{score} {_format_score(value)}" for score, value in judgement.scores.items())
        text = "\n".join(part for part in (scores, judgement.explanation, judgement.error) if part)
        yield f"<b>{escape(name)}</b><pre>{escape(_shorten(text, MAX_SHOWN_CHARS))}</pre>"


def _get_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of a plot: 0 to 1 for most scores, wider if the values need it."""
    low, high = min([0.0, *values]), max([1.0, *values])
    return low, high


def _count_bins(values: Sequence[float], low: float, high: float) -> list[int]:
    counts = [0] * BINS
    for value in values:
        counts[min(int((value - low) / (high - low) * BINS), BINS - 1)] += 1
    return counts


def _format(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return _shorten(text, MAX_SHOWN_CHARS)


def _shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def _format_score(value: Score) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
