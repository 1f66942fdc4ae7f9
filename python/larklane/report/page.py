"""The report as one page for screen and print: no script, no network access."""

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from larklane.figures.charts import Figure
from larklane.numbers import wording
from larklane.records.cases import EXPOSED, by_benchmark, metrics
from larklane.report.digest import Digest, Table, advice_table, call_costs, comparison_table, counts, early, gained, gains, headlines, machines, messages, shortened, troubles
from larklane.records.rows import Row
from larklane.report.profile_digest import ProfileDigest
from larklane.report.row_digest import criteria, point_table, row_title

ROWS_OPEN = 30  # a longer table is folded
OF_PROFILES = ("partition", "join", "early bird", "smallest timer", "exposed time", "median, p10, p90", "95 % interval")

CSS = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; color: #1c1c1c; background: #fff; max-width: 1100px; margin: 0 auto; padding: 1.2em }
h1 { font-size: 1.7em; margin: 0 0 .2em } h2 { margin: 2em 0 .4em; border-bottom: 2px solid #0072b2; padding-bottom: .15em }
h3 { margin: 1.4em 0 .3em } p { max-width: 75em } nav a { margin-right: 1em; white-space: nowrap } a { color: #005a8c }
table { border-collapse: collapse; font-size: .87em; margin: .6em 0 1em } caption { text-align: left; color: #555 }
th, td { text-align: left; vertical-align: top; padding: .3em .7em; border-bottom: 1px solid #ddd } th { background: #f1f5f8 }
tr:nth-child(even) td { background: #fafbfc } .wide { overflow-x: auto }
.better, .cheaper { color: #00684a } .worse { color: #b00020 } .dearer { color: #6b4a00 } td:nth-child(2) { min-width: 11em }
.stamp { color: #b00020; border: 1px solid #b00020; border-radius: 4px; padding: .2em .6em; display: inline-block }
figure { margin: 1.2em 0 2em; border: 1px solid #e2e2e2; border-radius: 4px; padding: .5em } img { width: 100%; height: auto; display: block }
figcaption { color: #555; font-size: .87em } dt { font-weight: 600; margin-top: .5em } dd { margin: 0 0 0 1.5em }
.problems { color: #b00020 }
summary { cursor: pointer; color: #005a8c } li { margin: .25em 0 }
@media print { body { max-width: none; font-size: 11px } figure, tr { break-inside: avoid } nav { display: none } }
"""


def _table(table: Table, folded: str = "") -> str:
    """@param folded  title of a long table while it is closed"""
    if not table.rows:
        return ""
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.heads)
    head = f"<thead><tr>{heads}</tr></thead>" if any(table.heads) else ""
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>\n" for row in table.rows)
    text = f'<div class="wide"><table>{head}<tbody>{rows}</tbody></table></div>'
    if folded and len(table.rows) > ROWS_OPEN:
        return f"<details><summary>{escape(folded)} ({len(table.rows)} rows)</summary>{text}</details>"
    return text


def _cell(text: str) -> str:
    """A table cell: a verdict in colour, numbers joined to their units."""
    verdict = re.match(r"(better|worse|cheaper|dearer)\b", text, re.I)
    bound = re.sub(r"(?<=\d) (?=%|[KMG]iB|B\b|[mnµ]?s\b|MB/s)", "\u00a0", escape(text))
    if verdict:
        bound = f'<strong class="{verdict[0].lower()}">{verdict[0]}</strong>{bound[verdict.end():]}'
    return f"<td>{bound}</td>"


def _list(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>\n" for sentence in sentences)
    return f"<ul>{items}</ul>" if items else ""


def _terms(terms: Mapping[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(term)}</dt><dd>{escape(what)}</dd>\n" for term, what in terms.items()) + "</dl>"


def _figure(figure: Figure, drawn: Mapping[str, bytes]) -> str:
    source = base64.b64encode(drawn["svg"]).decode()
    name = escape(figure.name)
    return (f'<figure id="figure-{name}"><img alt="{escape(f"{figure.title} {figure.caption}")}" src="data:image/svg+xml;base64,{source}">'
            f'<figcaption>Beside this page: <a href="{name}.csv">{name}.csv</a> (what is plotted), <a href="{name}.svg">{name}.svg</a>, '
            f'<a href="{name}.png">{name}.png</a></figcaption></figure>')


def _metrics(made: Digest) -> str:
    terms = {metric.name: metric.what for group in by_benchmark(made.cases).values() for metric in metrics(group) if metric.what}
    return _terms({**terms, EXPOSED.name: EXPOSED.what} if terms else {})


def _comparisons(made: Digest) -> str:
    text = ""
    for title, comparisons in (("Runs against each other", made.outcomes), ("Partitions against one message", made.within)):
        if comparisons:
            text += f"<h3>{title}</h3>{_table(counts(comparisons))}{_table(comparison_table(made, comparisons), 'All points')}"
    return text or "<p>Nothing to compare: that takes partitions beside another way, or beside a second run with the same parameters.</p>"


def _advice(made: Digest) -> str:
    intro = ("<p>The simplest choice (one send after the join, then few partitions before many) unless another one's exposed time is "
             "surely shorter: the 95 % intervals of the medians do not overlap.</p>") if made.advice else ""
    return intro + _table(advice_table(made), "All places") + _list(made.gaps)


def _failures(made: Digest) -> str:
    table = troubles(made.collection)
    text = _table(table) or "<p>None: every way that was asked for was measured, every round verified.</p>"
    seen = early(made.collection)
    if seen.rows:
        text += ("<h3>Does a part arrive while another one is held back?</h3><p>Seen by the guard round, before anything was timed.</p>"
                 + _table(seen))
    return text


def _profile(profile: ProfileDigest, drawings: Mapping[str, Mapping[str, bytes]]) -> str:
    pictures = "".join(_figure(figure, drawings[figure.name]) for figure in profile.figures if figure.name in drawings)
    tables = "".join(f"<h3>{escape(title)}</h3>{_table(table, 'All messages')}" for title, table in profile.tables)
    problems = f'<div class="problems">{_list(profile.problems)}</div>' if profile.problems else ""
    saved = f"<h3>Would sending early, or in groups, save time?</h3>{_list(profile.savings)}" if profile.savings else ""
    ordinary = f"<h3>Ordinary messages under p2p=on</h3>{_list(profile.ordinary)}" if profile.ordinary else ""
    return f"<h3>{escape(profile.name)}</h3><p>{escape(profile.subject)}</p>{problems}{ordinary}{saved}{tables}{pictures}"


def _row(row: Row) -> str:
    table = _table(point_table(row.points), "All points") if row.points else ""
    return f"<h3>{escape(row_title(row))}</h3><p>{escape(row.subject())}</p>{_list(criteria(row))}{table}"


def page(made: Digest, drawings: Mapping[str, Mapping[str, bytes]], no_figures: str = "", profiles: Sequence[ProfileDigest] = ()) -> str:
    """@param drawings  by figure name: {"svg", "png"}
    @param no_figures  reason if there are none
    """
    of_profiles = {figure.name for profile in profiles for figure in profile.figures}
    pictures = "".join(_figure(figure, drawings[figure.name]) for figure in made.figures if figure.name in drawings and figure.name not in of_profiles)
    costs, rates = call_costs(made), messages(made)
    stamp = f'<p class="stamp">{escape(made.stamp)}</p>' if made.stamp else ""
    sections = {
        "gain": ("What you gain", f"{_list(gained(made))}{_table(gains(made))}{stamp}"),
        "profiles": ("Profiles", "".join(_profile(profile, drawings) for profile in profiles)),
        "rows": ("Rows", "".join(map(_row, made.collection.rows))),
        "what": ("What was measured", f"<p>{escape(made.subject())}. Two processes, or more for the patterns, send a message round by "
                 f"round, in several ways, in turns; data and completion are verified in each round.</p>{_list(shortened(made.collection))}{_table(machines(made))}"),
        "headline": ("In short", f"<p>Medians. {escape(made.shared())}</p>{_table(headlines(made))}" if made.cases else "<p>Nothing was "
                     "measured.</p>"),
        "metrics": ("What is measured", _metrics(made)),
        "figures": ("Figures", pictures or f"<p>None{': ' + escape(no_figures) if no_figures else ''}.</p>"),
        "comparisons": ("Comparisons", _comparisons(made)),
        "advice": ("How many partitions to use", _advice(made)),
        "calls": ("What the calls cost", _table(costs, "All calls")),
        "messages": ("Messages between threads", _table(rates, "All ways")),
        "failures": ("Failures and refusals", _failures(made)),
        "glossary": ("What the words mean", _terms(wording.GLOSSARY) + "<h3>Ways of sending</h3>" + _terms(
            {wording.WAYS[name]: what for name, what in wording.WAY_MEANINGS.items()})),
        "files": ("Files", _list(made.collection.sources)),
    }
    if not costs.rows:
        del sections["calls"]
    if not rates.rows:
        del sections["messages"]
    if not made.advice and not made.gaps:
        del sections["advice"]
    if not made.collection.rows:
        del sections["rows"]
    if made.collection.is_of_rows:
        sections = {name: sections[name] for name in ("profiles", "rows", "files")}
    if not profiles:
        del sections["profiles"]
    elif not made.collection.sources:
        sections = {name: sections[name] for name in ("profiles", "glossary")}
        words = [*OF_PROFILES, *(["lane"] if any(profile.ordinary for profile in profiles) else [])]
        sections["glossary"] = (sections["glossary"][0], _terms({name: wording.GLOSSARY[name] for name in words}))
    subject = wording.count(len(made.collection.rows), "row") if made.collection.is_of_rows else made.subject() if made.collection.sources else wording.count(len(profiles), "profile")
    links = "".join(f'<a href="#{name}">{title}</a> ' for name, (title, _) in sections.items())
    body = "\n".join(f'<section id="{name}"><h2>{title}</h2>\n{text}</section>' for name, (title, text) in sections.items())
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>Larklane: {escape(subject)}</title><style>{CSS}</style></head>\n<body><h1>Communication, measured</h1>\n"
            f"<nav>{links}</nav>\n{body}\n</body></html>\n")
