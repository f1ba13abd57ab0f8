"""For the site: links from a page to files outside docs/ become the files' names, as they are not on the site."""

import re


def on_page_markdown(markdown: str, **_) -> str:
    """Called by mkdocs with every page."""
    return re.sub(r"\[([^\]]+)\]\(\.\./([\w./-]+)\)", lambda m: f"{m[1]} (`{m[2]}` in the repository)", markdown)
