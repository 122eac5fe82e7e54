"""The tag libraries of the site's apps, of which a template may load several."""

from __future__ import annotations

from collections import Counter

from django.template import engines


def test_no_two_libraries_have_a_tag_or_filter_of_one_name() -> None:
    """The one that is loaded last would hide the other's, without an error."""
    engine = engines["django"].engine
    ours = [engine.template_libraries[name] for name, module in engine.libraries.items() if "_app." in module]
    assert len(ours) >= 4
    names = Counter(name for library in ours for name in (*library.tags, *library.filters))
    assert [name for name, count in names.items() if count > 1] == []
