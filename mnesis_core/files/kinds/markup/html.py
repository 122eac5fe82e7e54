"""HTML: its title, outline, and how many links, forms, tables and scripts."""

from __future__ import annotations

from html.parser import HTMLParser

from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

MOST_CHARACTERS = 33_554_432
# Characters of one tag or comment: the parser starts over with it for every piece, and keeps it in memory.
MOST_UNFINISHED = 524_288
MOST_HEADINGS = 40
TEXT_CHARACTERS = 300
_COUNTED = {
    "a": "link",
    "img": "image",
    "form": "form",
    "table": "table",
    "script": "script",
    "iframe": "frame",
    "video": "video",
    "input": "input",
}
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_SILENT = ("script", "style", "noscript", "template", "head")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.description = ""
        self.language = ""
        self.counts: dict[str, int] = {}
        self.headings: list[tuple[int, str]] = []
        self.targets: dict[str, None] = {}
        self.forms: list[str] = []
        self.tags = 0
        self.words = 0
        self.text = ""
        self._within = ""
        self._silent = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags += 1
        if tag in _COUNTED:
            self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag in _HEADINGS and len(self.headings) < MOST_HEADINGS:
            self.headings.append((int(tag[1]), ""))
            self._within = tag
        elif tag == "title":
            self._within = tag
        self._silent = self._silent or (tag if tag in _SILENT else "")
        attributes = {name: value or "" for name, value in attrs[:50]}
        if tag == "html":
            self.language = attributes.get("lang", "")
        elif tag == "meta" and attributes.get("name", "").lower() == "description":
            self.description = attributes.get("content", "")
        elif tag == "form" and len(self.forms) < 50:
            self.forms.append(
                f"{attributes.get('method', 'get').upper()[:10]} {attributes.get('action', '')[:200]}".strip()
            )
        elif tag == "a" and attributes.get("href", "").startswith(("http:", "https:")) and len(self.targets) < 2_000:
            self.targets[attributes["href"].split("/", 3)[2][:200]] = None

    def handle_endtag(self, tag: str) -> None:
        if tag == self._within:
            self._within = ""
        if tag == self._silent or (self._silent == "head" and tag == "body"):
            self._silent = ""

    def handle_data(self, data: str) -> None:
        if self._within == "title":
            self.title = (self.title + data[:TEXT_CHARACTERS])[:TEXT_CHARACTERS]
        elif self._within:
            level, text = self.headings[-1]
            self.headings[-1] = (level, (text + data[:TEXT_CHARACTERS])[:TEXT_CHARACTERS])
        if not self._silent:
            self.words += len(data.split())
            if len(self.text) < TEXT_CHARACTERS:
                self.text += " " + shown(data, characters=TEXT_CHARACTERS)


def explore(source: Source) -> Findings:
    page = _Page()
    characters = _feed(page, source)
    if not page.tags:
        raise Unreadable("it has no HTML tag")
    covered = "all of it" if characters is None else f"the first {characters:,} characters"
    counts = [counted(page.counts[tag], name) for tag, name in _COUNTED.items() if tag in page.counts]
    language = f", language {shown(page.language, characters=20)}" if page.language else ""
    lines = [
        f"Title: {shown(page.title, characters=200) or 'none'}{language}",
        f"{counted(page.words, 'word')}; {', '.join(counts) or 'no links'}",
    ]
    if page.description:
        lines.append(f"Description: {shown(page.description, characters=200)}")
    headings = [(level, text) for level, text in page.headings if text.strip()]
    if headings:
        lines += ["Headings:", *(f"{'  ' * (level - 1)}{shown(text)}" for level, text in headings)]
    if page.forms:
        lines.append(f"Forms: {listed(page.forms, most=8)}")
    if page.targets:
        lines.append(f"Links to {listed(page.targets, most=12)}")
    lines.append(f"Text: {shown(page.text, characters=TEXT_CHARACTERS)}")
    return Findings(lines=lines, covered=covered)


def _feed(page: _Page, source: Source) -> int | None:
    # The parser is not closed: what is open at the end is no content, and looking for its end may take very long.
    characters = 0
    for piece in source.pieces():
        characters += len(piece)
        page.feed(piece)
        if characters >= MOST_CHARACTERS or len(page.rawdata) > MOST_UNFINISHED:
            return characters
    return None
