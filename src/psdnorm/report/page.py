"""One self-contained HTML page: text, tables, pictures, and a band on top of what was simulated."""

import base64
import html
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from psdnorm.store.atomic import written

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
.band { background: #7a3e00; color: #fff; padding: .5rem 1rem; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
caption { text-align: left; font-weight: 600; }
th, td { padding: .3rem .8rem; border-bottom: 1px solid #8888; text-align: right; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; height: auto; background: #fff; }
pre { overflow-x: auto; padding: .5rem 1rem; border: 1px solid #8888; }
"""


class Page:
    """A page that is put together from top to bottom; all texts are taken as they are.

    Parameters
    ----------
    title : str
    simulated : bool
        Whether a band on top says that nobody slept these nights.

    Examples
    --------
    >>> page = Page("Norms", simulated=True).text("1 < 2").table("Accuracy", ["norm"], [["psd"]])
    >>> "<p>1 &lt; 2</p>" in page.html()
    True
    """

    def __init__(self, title: str, *, simulated: bool = False) -> None:
        self._title = title
        band = "These nights are simulated. They say nothing about patients."
        self._parts = [f'<p class="band" role="note">{band}</p>'] if simulated else []
        self._parts.append(f"<h1>{html.escape(title)}</h1>")

    def heading(self, text: str) -> Self:
        """Begin a section."""
        return self._add(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> Self:
        """Add a paragraph."""
        return self._add(f"<p>{html.escape(text)}</p>")

    def command(self, text: str) -> Self:
        """Add what can be typed into a shell."""
        return self._add(f"<pre><code>{html.escape(text)}</code></pre>")

    def table(self, caption: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Self:
        """Add a table whose first column names the rows."""
        names = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in head)
        body = "".join(
            f'<tr><th scope="row">{html.escape(first)}</th>'
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            + "</tr>"
            for first, *cells in rows
        )
        return self._add(
            f'<div class="scroll" tabindex="0"><table><caption>{html.escape(caption)}</caption>'
            f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
        )

    def picture(self, png: bytes, words: str) -> Self:
        """Add a PNG, and words that stand for it where it cannot be seen."""
        data = base64.b64encode(png).decode()
        return self._add(
            f'<p><img alt="{html.escape(words)}" src="data:image/png;base64,{data}"></p>'
        )

    def html(self) -> str:
        """Return the page."""
        parts = "\n".join(self._parts)
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{html.escape(self._title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
            f"<body>\n<main>\n{parts}\n</main>\n</body>\n</html>\n"
        )

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the page, whole or not at all."""
        with written(Path(path)) as file:
            file.write(self.html().encode())

    def _add(self, part: str) -> Self:
        self._parts.append(part)
        return self
