"""Reads the page that experiments/report/report.py writes, for its tests."""

import html.parser


class Page(html.parser.HTMLParser):
    """What a report shows: rows of its tables, by heading of the section; texts; pictures."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.pictures, self.texts, self.links = {}, [], [], []
        self._section = self._cell = None
        self._open = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.links += [attributes[name] for name in ("src", "href") if name in attributes]
        if tag == "img":
            self.pictures.append(attributes)
        if tag in ("meta", "img"):
            return
        self._open.append(tag)
        if tag == "tr":
            self.tables.setdefault(self._section, []).append([])
        elif tag in ("td", "th", "h2"):
            self._cell = ["", attributes.get("class", "")]

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, tag
        if tag in ("td", "th"):
            self.tables[self._section][-1].append(tuple(self._cell))
        elif tag == "h2":
            self._section = self._cell[0]

    def handle_data(self, data):
        if self._open[-1:] == ["style"]:
            return
        self.texts.append(data)
        if self._cell is not None:
            self._cell[0] += data

    @property
    def text(self):
        """Everything that is read."""
        return " ".join(self.texts)

    def rows(self, section):
        """Cells as {heading: (text, class)}."""
        heading, *rows = self.tables[section]
        return [dict(zip((name for name, _ in heading), row)) for row in rows]
