"""The page as text: what is in it, and what can never be."""

import base64
import gzip
import hashlib
import json
import re

from recollect.view import inline, page
from view import samples


def test_the_documents_are_in_the_page():
    document = samples.document()
    data = re.search(r'id="data">([A-Za-z0-9+/=]*)</script>', page.html([document])).group(1)
    assert json.loads(gzip.decompress(base64.b64decode(data)))["documents"] == [document]


def test_no_text_of_a_document_is_markup():
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    text = page.html([samples.document(title=hostile, names=[hostile] * 4)])
    assert "<img" not in text and "alert(" not in text.replace("&lt;script&gt;alert(", "").replace("onerror=alert(", "")
    assert text.count("<script") == 2 and "&lt;script&gt;" in text


def test_the_policy_names_exactly_what_is_there():
    text = page.html([samples.document()])
    script = re.search(r"<script>(.*?)</script>", text, re.S).group(1)
    style = re.search(r"<style>(.*?)</style>", text, re.S).group(1)
    for kind, content in (("script", script), ("style", style)):
        found = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{found}'" in text
    assert "default-src 'none'" in text and "connect-src 'none'" in text and "unsafe" not in page.policy()
    assert not re.search(r"\beval\(|new Function\(|https?://(?!www\.w3\.org/)", script)


def test_the_same_documents_make_the_same_page(tmp_path):
    document = samples.document()
    assert page.html([document]) == page.html([document])
    assert page.write(tmp_path / "p.html", [document]).read_text() == page.html([document])


def test_a_notebook_shows_it_in_a_frame_of_its_own(tmp_path):
    shown = inline.View([samples.document(title='a "title"')])
    text = shown._repr_html_()
    assert text.startswith('<iframe sandbox="allow-scripts"') and text.count('"') % 2 == 0
    assert "<script" not in text and "&lt;script" in text
    assert shown.save(tmp_path / "p.html").exists() and 'a "title"' in repr(shown)
