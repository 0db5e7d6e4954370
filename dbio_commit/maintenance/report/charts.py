"""Draws charts as inline SVG, without a script. Pure.

Colours are classes, for which the page's style has a light and a dark colour. Each chart has a description in words,
and a table with its numbers stands beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from markupsafe import Markup

from dbio_commit.base.figures import number_text
from dbio_commit.base.texts import visible

_WIDTH, _HEIGHT = 720, 200
_LEFT, _TOP, _BOTTOM = 56, 12, 26
_PLOT = _HEIGHT - _TOP - _BOTTOM
_WIDEST = 56
_LETTER = 6.5
_LABELS = 9
"""How many labels of columns fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A column of a chart."""

    label: str
    parts: Sequence[tuple[str, int]]
    """From the bottom: the class and the number of each part."""
    tip: str
    """The text that appears under the pointer."""


def columns(stacks: Sequence[Stack], *, id: str, title: str, description: str) -> Markup:
    """Columns of stacked parts over a scale that begins at 0. The id must be unique in the page."""
    slot = (_WIDTH - _LEFT) / max(len(stacks), 1)
    scale = scale_of(max((_sum(stack) for stack in stacks), default=0))
    every = ceil(len(stacks) / _LABELS)
    marks = [_line(tick, scale) for tick in _ticks(scale)]
    for i, stack in enumerate(stacks):
        middle = _LEFT + (i + 0.5) * slot
        marks.append(_column(stack, middle, min(slot * 0.8, _WIDEST), scale))
        if i % every == 0:
            marks.append(_text(*_within(middle, stack.label), stack.label))
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-labelledby="{}-title {}-desc">'
        '<title id="{}-title">{}</title><desc id="{}-desc">{}</desc>{}</svg>'
    ).format(_WIDTH, _HEIGHT, id, id, id, visible(title), id, visible(description), Markup("").join(marks))


def bar(parts: Sequence[tuple[str, float]], whole: float) -> Markup:
    """A bar that shows the same as the numbers beside it."""
    rects, x = Markup(""), 0.0
    for kind, size in parts:
        width = 100 * size / whole if whole > 0 else 0.0
        rects += Markup('<rect class="{}" x="{:.2f}" width="{:.2f}" height="10"/>').format(kind, x, width)
        x += width
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(rects)


def scale_of(most: int) -> int:
    """The end of a scale from 0: the next of 1, 2, 4, 6, 8, 10, 20, 40 and so on."""
    power = 1
    while power * 10 < most:
        power *= 10
    return next(it * power for it in (1, 2, 4, 6, 8, 10) if it * power >= most)


def _ticks(scale: int) -> Sequence[int]:
    return (0, scale) if scale % 2 else (0, scale // 2, scale)


def _sum(stack: Stack) -> int:
    return sum(number for _, number in stack.parts)


def _line(tick: int, scale: int) -> Markup:
    y = _y(tick, scale)
    line = Markup('<line x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(_LEFT, _WIDTH, y, y)
    return line + _text(_LEFT - 8, y + 4, "end", number_text(tick))


def _column(stack: Stack, middle: float, width: float, scale: int) -> Markup:
    return Markup("<g><title>{}</title>{}</g>").format(
        visible(stack.tip), Markup("").join(_rects(stack, middle - width / 2, width, scale))
    )


def _rects(stack: Stack, x: float, width: float, scale: int) -> Iterator[Markup]:
    below = 0
    for kind, number in stack.parts:
        height = max(_PLOT * number / scale, 1.5 if number else 0)  # so that one of a million is visible
        y = min(_y(below + number, scale), _HEIGHT - _BOTTOM - height)
        below += number
        if number:
            yield Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>').format(
                kind, x, y, width, height
            )


def _within(middle: float, label: str) -> tuple[float, float, str]:
    """The place of a label below the axis: in the middle of its column, unless that would cut it off at the right."""
    fits = middle + len(label) * _LETTER / 2 <= _WIDTH
    return (middle, _HEIGHT - 8, "middle") if fits else (_WIDTH, _HEIGHT - 8, "end")


def _text(x: float, y: float, anchor: str, text: str) -> Markup:
    return Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(x, y, anchor, visible(text))


def _y(number: int, scale: int) -> float:
    return _TOP + _PLOT * (1 - number / scale)
