"""What a person does on the search page, with photographs and a trained model: search, filter, open, browse and export."""

from __future__ import annotations

import csv
import io
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from PIL import Image

from silohash.api.runs import train
from silohash.data.catalogue import open_archive
from silohash.service.backends import LocalBackend
from silohash.service.web.app import create_app
from silohash.service.web.uploads import MOST_BYTES
from tests.browsers import give_file, opening_pages, started_browser, until
from tests.pictures import small_config
from tests.runs import write_metadata
from tests.served import running
from tests.slow_link import SlowLink

COUNT, QUERIES = 90, 6
PHONE = {"width": 320, "height": 640}
ARABIC = "قطة نائمة على مقعد خشبي بجانب النافذة"
LONG = "A photograph that somebody described at great length. " * 69


@dataclass(frozen=True)
class Archive:
    """Photographs with captions, as files and as a run that is served."""

    folder: Path
    run: Path
    names: tuple[str, ...]
    address: str

    def photograph(self, number: int) -> bytes:
        """Return the file of a photograph."""
        return (self.folder / f"{self.names[number]}.jpg").read_bytes()


@contextmanager
def served(run: Path) -> Iterator[str]:
    """Serve a run, and yield the address of its page."""
    with closing(LocalBackend.open(run)) as backend, running(create_app(backend)) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started_browser()


@pytest.fixture(scope="module")
def archive(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    """Photographs of coco-mini. The first one has a caption in Arabic, and the second one a very long one."""
    folder = tmp_path_factory.mktemp("photographs")
    source, pictures = open_archive("coco-mini"), folder / "pictures"
    pictures.mkdir()
    rows = []
    for row in [row for row, name in enumerate(source.ids) if name.endswith("#0")][:COUNT]:
        name = str(source.ids[row]).partition(".")[0]
        shutil.copyfile(shared_data / "coco-mini" / "images" / f"{name}.jpg", pictures / f"{name}.jpg")
        text = (ARABIC, LONG)[len(rows)] if len(rows) < 2 else source.caption(row)
        split = "query" if len(rows) >= COUNT - QUERIES else "train"
        labels, year = "|".join(source.labels_of(row)), str(2001 + len(rows) % 3)
        rows.append(
            {"file_name": f"{name}.jpg", "id": name, "text": text, "labels": labels, "year": year, "split": split}
        )
    write_metadata(pictures, rows)
    (folder / "run.toml").write_text(small_config(pictures.as_posix(), rounds=2, local_epochs=12), encoding="utf-8")
    train(folder / "run.toml", folder / "run", report=False)
    with served(folder / "run") as address:
        yield Archive(pictures, folder / "run", tuple(row["id"] for row in rows), address)


@pytest.fixture
def opened(browser: Any, archive: Archive) -> Iterator[Callable[..., Any]]:
    yield from opening_pages(browser, archive.address, width=1280, height=900)


SHOW = """
async () => {
  const cards = [...document.querySelectorAll("#results .card")];
  for (const picture of cards.map((card) => card.querySelector("img"))) {
    picture.loading = "eager";
    await picture.decode();
  }
  return cards.map((card) => card.querySelector("a").href);
}
"""


def links_of(page: Any) -> list[str]:
    """Return the addresses of the results on a page, all of which must have a photograph that can be shown."""
    until(page, "!document.querySelector('[aria-busy]')")
    links = list(page.evaluate(SHOW))
    assert links
    return links


def shown(page: Any) -> list[str]:
    """Return the ids of the results on a page, as in `links_of`."""
    return [parse_qs(urlsplit(link).query)["id"][0] for link in links_of(page)]


def go_back(page: Any, names: list[str]) -> None:
    """Go back to a page of results, whose address comes before its results do."""
    page.go_back()
    ids = "[...document.querySelectorAll('#results .card > a')].map(a => new URL(a.href).searchParams.get('id'))"
    until(page, f"{ids}.join() === '{','.join(names)}'")


def test_words_are_searched_and_counts_narrow_the_results(opened: Callable[..., Any]) -> None:
    page = opened()
    page.fill("#q", "a dog")
    page.wait_for_url("**/?q=a+dog")
    everything = shown(page)
    page.click(".facets a:has-text('person') >> nth=0")
    page.wait_for_url("**/?q=a+dog&label=person")
    assert shown(page)
    facts = page.locator(".card").evaluate_all("cards => cards.map(card => JSON.parse(card.dataset.facts))")
    assert all("person" in each["labels"] for each in facts)
    go_back(page, everything)
    assert page.url.endswith("/?q=a+dog")


@pytest.mark.parametrize("way", ["choose", "paste", "drop"])
def test_a_photograph_finds_itself_and_takes_words_beside_it(
    opened: Callable[..., Any], archive: Archive, way: str
) -> None:
    page = opened("/?find=image")
    give_file(page, way, archive.photograph(7), "image/jpeg")
    page.wait_for_url("**/?picture=*")
    assert archive.names[7] in shown(page)[:5]
    until(page, "document.querySelector('.chip img').naturalWidth > 24")
    page.fill("#q", "a dog")
    page.wait_for_url("**/?picture=*&q=a+dog*")
    assert shown(page)
    assert page.locator(".chip img").count() == 1


def test_a_large_photograph_on_a_slow_line_is_sent_small(
    opened: Callable[..., Any], archive: Archive, tmp_path: Path
) -> None:
    small = Image.open(archive.folder / f"{archive.names[7]}.jpg").convert("RGB")
    pixels = np.asarray(small.resize((3900, 2900))).astype(np.int16)
    pixels += np.random.default_rng(0).integers(-25, 25, pixels.shape, np.int16)  # noise makes the file large
    large = tmp_path / "large.jpg"
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(large, quality=100, subsampling=0)
    assert large.stat().st_size > max(25_000_000, MOST_BYTES)
    with SlowLink(int(archive.address.rpartition(":")[2]), 300_000).running() as link:
        page = opened("/?find=image", at=f"http://127.0.0.1:{link.port}")
        before = link.up.passed
        page.set_input_files("#file", large)
        page.get_by_role("progressbar", name="Sending the picture").wait_for()
        page.wait_for_url("**/?picture=*")
        assert link.up.passed - before < 1_000_000
        assert archive.names[7] in shown(page)[:5]
        page.goto("about:blank")


def test_a_drawing_is_searched(opened: Callable[..., Any]) -> None:
    page = opened()
    page.click("#draw-open")
    page.click("#canvas", position={"x": 90, "y": 90})
    page.wait_for_url("**/?picture=*")
    assert shown(page)


def test_photographs_are_browsed_opened_and_left_for_their_neighbors(
    opened: Callable[..., Any], archive: Archive
) -> None:
    page = opened()
    page.click("text=browse all of them")
    page.wait_for_url("**/?browse=1")
    assert f"of {COUNT - QUERIES}" in page.locator("#headline").text_content()
    names = shown(page)
    page.click("a[rel=next]")
    page.wait_for_url("**page=2")
    assert not {*names} & {*shown(page)}
    go_back(page, names)
    page.click(".card > a >> nth=1")
    page.wait_for_url(f"**/item?**id={names[1]}&**")
    assert page.locator(".item img").evaluate("image => image.decode().then(() => image.naturalWidth)") >= 128
    for step, number in (("next", 2), ("prev", 1), ("prev", 0)):
        page.click(f"a[rel={step}]")
        page.wait_for_url(f"**/item?**id={names[number]}&**")
    page.click("text=by its picture")
    page.wait_for_url(f"**/?like={names[0]}&of=*&by=image")
    assert names[0] not in shown(page)


def test_a_silo_without_its_index_is_named_and_the_others_are_searched(
    opened: Callable[..., Any], archive: Archive, tmp_path: Path
) -> None:
    run = shutil.copytree(archive.run, tmp_path / "run")
    shutil.rmtree(run / "index" / "silo-2")
    with served(run) as address:
        page = opened("/?q=a+dog", at=address)
        assert "1 of 2 silos answered" in page.locator("#headline").text_content()
        assert "silo-2" in page.locator(".warning summary").text_content()
        assert shown(page)


def test_without_script_a_photograph_is_sent_as_it_is(opened: Callable[..., Any], archive: Archive) -> None:
    page = opened("/?find=image", java_script_enabled=False)
    give_file(page, "choose", archive.photograph(7), "image/jpeg")
    page.click("#upload button")
    page.wait_for_url("**/?picture=*")
    assert page.locator(f".card > a[href*='{archive.names[7]}']").count() == 1


@pytest.mark.parametrize(
    "options", [{"viewport": PHONE}, {"forced_colors": "active"}], ids=["320 pixels", "forced colors"]
)
def test_captions_in_arabic_and_of_thousands_of_characters_sit_right(
    opened: Callable[..., Any], archive: Archive, options: dict[str, Any]
) -> None:
    width = options.get("viewport", {"width": 1280})["width"]
    page = opened("/?browse=1", **options)
    heights, links, directions = set(), list[str](), list[str]()
    while True:
        links += links_of(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        heights |= {*page.locator(".title").evaluate_all("all => all.map(each => each.getBoundingClientRect().height)")}
        arabic = page.locator(".title", has_text=ARABIC)
        directions += arabic.evaluate_all("all => all.map(each => getComputedStyle(each).direction)")
        if not page.locator("a[rel=next]").count():
            break
        page.goto(page.locator("a[rel=next]").evaluate("link => link.href"))
    assert directions == ["rtl"]
    assert len(heights) == 1, "long captions do not stretch their cards"
    for name in archive.names[:2]:
        page.goto(next(link for link in links if name in link))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_text("The whole text").click()
    assert page.locator(".whole p").inner_text().strip() == LONG.strip()


def tab_to(page: Any, condition: str) -> None:
    """Press Tab until the focused element, `e`, meets a condition."""
    for _ in range(150):
        page.keyboard.press("Tab")
        if page.evaluate(f"(e => {condition})(document.activeElement)"):
            return
    pytest.fail(f"Tab does not lead to: {condition}")


def test_a_person_with_a_keyboard_searches_filters_opens_and_exports(opened: Callable[..., Any]) -> None:
    page = opened()
    until(page, "document.activeElement.id === 'q'")
    page.keyboard.type("a dog")
    page.wait_for_url("**/?q=a+dog")
    tab_to(page, "e.matches('summary') && e.textContent.includes('Labels')")
    page.keyboard.press("Enter")
    tab_to(page, "e.name === 'label' && e.value === 'person'")
    page.keyboard.press("Space")
    page.wait_for_url("**/?q=a+dog&label=person")
    names = shown(page)
    page.keyboard.press("Escape")
    assert not page.locator("details.menu[open]").count()
    tab_to(page, "e.matches('.card > a')")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/item?**id={names[1]}&**")
    page.keyboard.press("ArrowRight")
    page.wait_for_url(f"**/item?**id={names[2]}&**")
    tab_to(page, "e.textContent === 'Back to the results'")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?q=a+dog&label=person")
    tab_to(page, "e.dataset.export === 'csv'")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    table = Path(download.value.path()).read_text(encoding="utf-8-sig")
    assert [row["id"] for row in csv.DictReader(io.StringIO(table))] == names
