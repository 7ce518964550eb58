"""Environments of templates: texts are escaped, and their invisible characters are shown."""

from __future__ import annotations

import jinja2
import pytest
from markupsafe import Markup

from silohash.base.templates import html_environment, visible_value


def test_invisible_characters_of_texts_are_shown_and_other_values_kept() -> None:
    assert visible_value("a\u202eb") == "a⟨U+202E⟩b"
    assert visible_value(Markup("<b>\n</b>")) == Markup("<b>\n</b>")
    assert visible_value(3) == 3


@pytest.mark.parametrize(
    ("package", "template"), [("silohash.report", "report.html"), ("silohash.service.web", "error.html")]
)
def test_a_package_has_its_templates(package: str, template: str) -> None:
    environment = html_environment(package)
    assert template in environment.list_templates()
    shown = environment.from_string("{% if true %}\n  {{ text }}\n{% endif %}\n").render(text="<i>\x07")
    assert shown == "  &lt;i&gt;⟨U+0007⟩\n"
    with pytest.raises(jinja2.UndefinedError):
        environment.from_string("{{ missing }}").render()
