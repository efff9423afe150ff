"""Write the report of a run as one HTML file: no scripts, nothing from other servers, plots as inline SVG.

Outputs of models are untrusted, so every text is escaped, and a policy in the page forbids everything but its styles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import orjson

from rem.agents.expressions import Score
from rem.evals.experiment_report import RunComparison, RunSummary, ScoreFigures, list_values, passes
from rem.evals.experiment_store import StoredCase

MAX_SHOWN_CHARS = 2_000
MAX_SHOWN_CASES = 2_000
BINS = 10
PLOT_WIDTH, PLOT_HEIGHT = 360, 110
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
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
    anchors = {case.case.id: f"case-{case.position}" for case in cases}
    sections = [
        _render_head(summary),
        _render_verdict(summary, comparison),
        _render_tiles(summary),
        _render_scores(summary, comparison),
        "" if comparison is None else _render_comparison(comparison, anchors),
        "<h2>Plots</h2>",
        _render_legend(comparison),
        '<div class="plots">',
        *(_render_plots(figures, cases, baseline_cases) for figures in summary.scores),
        "</div>",
        _render_cases(cases),
        _render_versions(summary),
    ]
    style = files("rem.evals").joinpath("report.css").read_text(encoding="utf-8")
    return _PAGE.format(title=escape(summary.run.label), style=style, body="\n".join(filter(None, sections)))


def _render_head(summary: RunSummary) -> str:
    run = summary.run
    of = f"{run.target['kind']} {run.target_name} on {run.golden_set}, {run.created_at:%Y-%m-%d %H:%M} UTC"
    return f'<h1>{escape(run.label)}</h1>\n<p class="quiet">{escape(of)}</p>'


def _render_verdict(summary: RunSummary, comparison: RunComparison | None) -> str:
    """Return the first thing a reader wants to know, if there is something to say."""
    lines = []
    if not summary.is_complete:
        lines.append(("warn", f"Not complete: {summary.outputs} of {summary.cases} cases have run."))
    if errors := summary.errors + summary.evaluator_errors:
        lines.append(("bad", f"{errors} {'error' if errors == 1 else 'errors'}: those cases count as failed."))
    if comparison is not None and not comparison.common_cases:
        lines.append(("warn", f"No case in common with {comparison.baseline.label}: nothing was compared."))
    elif comparison is not None:
        worse = ", ".join(change.label for change in comparison.regressions)
        text = f"Worse than {comparison.baseline.label}: {worse}." if worse else "No figure is worse than in "
        lines.append(("bad" if worse else "good", text if worse else f"{text}{comparison.baseline.label}."))
    return "\n".join(f'<p class="verdict {style}">{escape(text)}</p>' for style, text in lines)


def _render_tiles(summary: RunSummary) -> str:
    rate = summary.pass_rate
    tiles = [
        ("cases", str(summary.cases), ""),
        ("passed", "–" if rate is None else f"{rate:.0%}", _describe_passed(summary)),
        ("errors", str(summary.errors + summary.evaluator_errors), f"{summary.errors} when run"),
        ("median", _seconds(summary.seconds_p50), "for an output"),
        ("95 % within", _seconds(summary.seconds_p95), "for an output"),
    ]
    return (
        '<div class="tiles">'
        + "".join(
            f"<div><span>{escape(name)}</span><b>{escape(value)}</b><span>{escape(note)}</span></div>"
            for name, value, note in tiles
        )
        + "</div>"
    )


def _describe_passed(summary: RunSummary) -> str:
    return "no evaluator decides" if summary.pass_rate is None else f"{summary.passed} of {summary.judged}"


def _render_scores(summary: RunSummary, comparison: RunComparison | None) -> str:
    before = {} if comparison is None else {change.label: change for change in comparison.changes}
    rows = []
    for figures in summary.scores:
        change = before.get(figures.label)
        cells = [figures.mean, figures.minimum, figures.maximum]
        rows.append(
            f"<tr><td>{escape(figures.evaluator)}</td><td>{escape(figures.score)}</td>"
            + "".join(_number_cell(_number(value)) for value in cells)
            + _number_cell(str(figures.cases))
            + _change_cell(change.difference if change else None, is_bad=change is not None and change.is_regression)
            + "</tr>"
        )
    head = _table_head(["evaluator", "score"], ["mean", "least", "most", "cases", "change"])
    return f"<h2>Scores</h2>\n{_table('Scores', head + ''.join(rows))}"


def _render_comparison(comparison: RunComparison, anchors: Mapping[str, str]) -> str:
    rows = "".join(
        f"<tr><td>{escape(change.label)}</td>{_number_cell(_number(change.before))}"
        f"{_number_cell(_number(change.after))}{_change_cell(change.difference, is_bad=change.is_regression)}</tr>"
        for change in comparison.changes
    )
    lists = [
        ("Cases that passed before and do not now", comparison.newly_failed),
        ("Cases that pass now and did not before", comparison.newly_passed),
    ]
    texts = "".join(
        f"<p>{label}: {', '.join(_link(name, anchors[name]) for name in names)}</p>" for label, names in lists if names
    )
    if comparison.changed_versions:
        names = ", ".join(name.replace("_", " ") for name in comparison.changed_versions)
        texts += f"<p>What changed: {escape(names)}</p>"
    baseline, count = escape(comparison.baseline.label), comparison.common_cases
    head = _table_head(["figure"], ["before", "now", "change"])
    return f"<h2>Against {baseline}, over {count} common cases</h2>\n{_table('Comparison', head + rows)}{texts}"


def _render_legend(comparison: RunComparison | None) -> str:
    names = [("now", "this run")]
    if comparison is not None:
        names.append(("before", comparison.baseline.label))
    names += [("good", "case passed"), ("bad", "case failed")]
    return '<p class="legend">' + "".join(f'<i class="{style}"></i>{escape(name)}' for style, name in names) + "</p>"


def _render_plots(figures: ScoreFigures, cases: Sequence[StoredCase], baseline_cases: Sequence[StoredCase]) -> str:
    """Return the distribution of a score, beside that of the baseline, and below it the score of each case."""
    label = escape(figures.label)
    return (
        f"<figure><figcaption><b>{label}</b> <span>mean {_number(figures.mean)}</span></figcaption>"
        + _render_svg(f"Distribution of {label}", _draw_histogram(figures, cases, baseline_cases))
        + _render_svg(f"{label} by case", _draw_cases(figures, cases))
        + "</figure>"
    )


def _draw_histogram(figures: ScoreFigures, cases: Sequence[StoredCase], baseline_cases: Sequence[StoredCase]) -> str:
    values = list_values(cases, figures.evaluator, figures.score)
    earlier = list_values(baseline_cases, figures.evaluator, figures.score)
    low, high = _get_range([*values, *earlier])
    is_boolean = _is_boolean(figures, cases)
    bins = 2 if is_boolean else BINS
    # Shares, because the runs may have different numbers of cases.
    series = [("now", values), ("before", earlier)] if earlier else [("now", values)]
    shares = {name: _share_bins(numbers, low, high, bins) for name, numbers in series}
    highest = max(max(share for share, _ in column) for column in shares.values()) or 1.0
    slot = PLOT_WIDTH / bins
    bar = min(slot * 0.8 / len(series), 40)
    bars = []
    for position in range(bins):
        left = position * slot + (slot - bar * len(series)) / 2
        for number, (name, _) in enumerate(series):
            share, count = shares[name][position]
            height = (PLOT_HEIGHT - 14) * share / highest
            title = f"<title>{count} {'case' if count == 1 else 'cases'} ({share:.0%})</title>"
            bars.append(
                f'<rect class="{name}" x="{left + number * bar:.1f}" y="{PLOT_HEIGHT - height:.1f}" '
                f'width="{bar:.1f}" height="{height:.1f}">{title}</rect>'
            )
            if is_boolean and count:
                middle = left + (number + 0.5) * bar
                bars.append(_text(middle, PLOT_HEIGHT - height - 3, f"{share:.0%}", "middle"))
    names = [(0.25, "no", "middle"), (0.75, "yes", "middle")]
    ends = names if is_boolean else [(0, f"{low:g}", "start"), (1, f"{high:g}", "end")]
    return "".join(bars) + "".join(_text(PLOT_WIDTH * x, PLOT_HEIGHT + 13, name, anchor) for x, name, anchor in ends)


def _draw_cases(figures: ScoreFigures, cases: Sequence[StoredCase]) -> str:
    """Return one dot for each case in its order, so that a group of bad cases can be seen. It leads to the case."""
    judged = [case for case in cases if figures.evaluator in case.judgements]
    values = [(case, case.judgements[figures.evaluator].scores.get(figures.score)) for case in judged]
    dots = [(case, float(value)) for case, value in values if value is not None]
    low, high = _get_range([value for _, value in dots])
    shapes = []
    for position, (case, value) in enumerate(dots):
        x = PLOT_WIDTH * (position + 0.5) / max(len(dots), 1)
        y = PLOT_HEIGHT - 4 - (PLOT_HEIGHT - 8) * (value - low) / (high - low)
        style = {None: "now", True: "good", False: "bad"}[passes(case)]
        title = escape(f"{case.case.id}: {value:g}")
        shapes.append(
            f'<a href="#case-{case.position}"><circle class="{style}" cx="{x:.1f}" cy="{y:.1f}" r="3.5">'
            f"<title>{title}</title></circle></a>"
        )
    labels = _text(0, PLOT_HEIGHT + 13, "first case", "start") + _text(PLOT_WIDTH, PLOT_HEIGHT + 13, "last case", "end")
    return "".join(shapes) + labels


def _is_boolean(figures: ScoreFigures, cases: Sequence[StoredCase]) -> bool:
    scores = (case.judgements[figures.evaluator].scores for case in cases if figures.evaluator in case.judgements)
    return all(isinstance(values.get(figures.score, True), bool) for values in scores)


def _render_svg(label: str, content: str) -> str:
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 -6 {PLOT_WIDTH} {PLOT_HEIGHT + 24}">'
        f'<line x1="0" y1="{PLOT_HEIGHT}" x2="{PLOT_WIDTH}" y2="{PLOT_HEIGHT}"/>{content}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _render_cases(cases: Sequence[StoredCase]) -> str:
    # What needs attention comes first.
    ordered = sorted(cases, key=lambda case: (passes(case) is not False, case.position))
    shown = ordered[:MAX_SHOWN_CASES]
    rest = len(ordered) - len(shown)
    more = f"<p>{rest} more cases are in the files of the run.</p>" if rest else ""
    return "<h2>Cases</h2>\n" + "\n".join(map(_render_case, shown)) + more


def _render_case(case: StoredCase) -> str:
    state, style = {True: ("passed", "good"), False: ("failed", "bad"), None: ("judged", "quiet")}[passes(case)]
    if case.ended_at is None:
        state = "not run"
    label, beginning = escape(_shorten(case.case.id, 60)), escape(_shorten(case.case.text, 100))
    head = f'<summary><span class="{style}">{state}</span> <b>{label}</b> {beginning}</summary>'
    parts = {
        "input": case.case.input,
        "reference": case.case.reference,
        "output": case.output.value,
        "error": case.error,
    }
    body = "".join(
        f"<dt>{name}</dt><dd><pre>{escape(_format(value))}</pre></dd>"
        for name, value in parts.items()
        if value is not None
    )
    # A link to something inside of closed details opens them.
    return f'<details>{head}<dl id="case-{case.position}">{body}{"".join(_render_judgements(case))}</dl></details>'


def _render_judgements(case: StoredCase) -> Iterator[str]:
    for name, judgement in case.judgements.items():
        scores = ", ".join(f"{score} {_format_score(value)}" for score, value in judgement.scores.items())
        text = "\n".join(part for part in (scores, judgement.explanation, judgement.error) if part)
        yield f"<dt>{escape(name)}</dt><dd><pre>{escape(_shorten(text, MAX_SHOWN_CHARS))}</pre></dd>"


def _render_versions(summary: RunSummary) -> str:
    facts = {"seed": str(summary.run.seed), **dict(_flatten(summary.run.versions))}
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f"<h2>Versions</h2>\n{_table('Versions', rows)}"


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        label = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{label}: ")
        else:
            yield label, str(value)


def _table(label: str, rows: str) -> str:
    """Return a table that scrolls by itself on a narrow screen, also with the keyboard."""
    return f'<div class="wide" role="region" aria-label="{label}" tabindex="0"><table>{rows}</table></div>'


def _table_head(texts: Sequence[str], numbers: Sequence[str]) -> str:
    cells = [f"<th>{name}</th>" for name in texts] + [f'<th class="number">{name}</th>' for name in numbers]
    return f"<tr>{''.join(cells)}</tr>"


def _number_cell(text: str) -> str:
    return f'<td class="number">{text}</td>'


def _change_cell(difference: float | None, *, is_bad: bool) -> str:
    if difference is None:
        return _number_cell("")
    text = "±0" if abs(difference) < 0.0005 else f"{difference:+.3f}"
    return f'<td class="number{" bad" if is_bad else ""}">{text}</td>'


def _link(name: str, anchor: str) -> str:
    return f'<a href="#{anchor}">{escape(name)}</a>'


def _get_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range of a plot: 0 to 1 for most scores, wider if the values need it."""
    low, high = min([0.0, *values]), max([1.0, *values])
    return low, high


def _share_bins(values: Sequence[float], low: float, high: float, bins: int) -> list[tuple[float, int]]:
    """Return the share and the number of the values in each part of the range."""
    counts = [0] * bins
    for value in values:
        counts[min(int((value - low) / (high - low) * bins), bins - 1)] += 1
    return [(count / max(len(values), 1), count) for count in counts]


def _format(value: Any) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    return _shorten(text, MAX_SHOWN_CHARS)


def _shorten(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def _format_score(value: Score) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
