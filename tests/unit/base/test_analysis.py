from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from silohash.base.analysis import (
    UNICODE,
    WORDS,
    Analysis,
    analyze,
    default_analysis,
    detected_languages,
    languages,
    parsed_analysis,
    stop_words,
    term_of,
    words_of,
)
from silohash.base.errors import RepeatedValue, UnknownName

ENGLISH, FRENCH = Analysis(languages=("en",)), Analysis(languages=("fr",))

TEXTS = {
    "ar": ["رجل يركب حصانا في الشارع", "قطة على الطاولة"],
    "cs": ["pes běží po sněhu a štěká", "kočka sedí na stole"],
    "de": ["der Hund läuft über die Straße", "eine Katze sitzt auf dem Tisch"],
    "el": ["ο σκύλος τρέχει στο χιόνι"],
    "en": ["a dog runs over the street", "two cats on a table"],
    "es": ["un perro corre por la calle", "una mujer con el niño está en la playa"],
    "fa": ["سگ در برف می دود", "گربه از میز"],
    "fi": ["koira on pihalla ja kissa ei ole"],
    "fr": ["la cour de l'école", "vue de l’église", "devant l'hôtel de ville"],
    "hi": ["एक कुत्ता बर्फ में है", "मेज पर बिल्ली है"],
    "it": ["un cane corre nella neve", "la donna che è sul tavolo"],
    "ja": ["犬が雪の中を走る", "コーヒー"],
    "ko": ["개가 눈 속을 달린다"],
    "nl": ["een hond rent door het park", "de kat zit op de tafel"],
    "pl": ["pies biegnie w śniegu i szczeka", "kot jest na stole"],
    "pt": ["um cão corre na rua", "uma mulher com o menino não está em casa"],
    "ru": ["собака бежит по снегу", "кошка на столе"],
    "sv": ["en hund som springer i snön", "två katter på ett bord"],
    "th": ["หมาวิ่งในหิมะ"],
    "tr": ["bir köpek ve bir kedi", "çocuk için bu masa"],
    "zh": ["一只狗在雪地里奔跑"],
}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("GROẞ STRASSE", "groß straße"),
        ("cafe\u0301", "café"),
        ("Dampf\u00adschiff", "dampfschiff"),
        ("boat\u200b", "boat"),
        ("كِتَـــابٌ", "كتاب"),
        ("کیف", "كيف"),
        ("שָׁלוֹם", "שלום"),
        ("ΚΑΛΗΜΕΡΑ", "καλημέρα"),
        ("о́кна", "окна"),
        ("İstanbul", "istanbul"),
        ("ＢＯＡＴ ﬁsh ﾈｺ", "boat fish ネコ"),
        ("room ٤٢", "room 42"),
        ("‘boat’", "boat"),
        ("don’t", "don't"),
        ("l·lusió", "ŀlusió"),
    ],
)
def test_texts_that_readers_take_for_the_same(one, other):
    assert analyze(one, UNICODE) == analyze(other, UNICODE) != ()


def test_the_analysis_of_words_reads_english_as_before():
    assert analyze("The dog’s STRASSE isn't mp3, l'école 狗 a", WORDS) == (
        "dog",
        "strasse",
        "isnt",
        "mp",
        "3",
        "lécole",
        "狗",
    )
    assert analyze("straße", WORDS) == ("straße",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("l'homme d’une école", ["homme", "une", "école"]),
        ("qu'elle aujourd'hui", ["elle", "aujourdhui"]),
        ("dell'arte c'è l'or", ["arte", "è", "or"]),
        ("rock'n'roll O'Brien's dogs' isn't", ["rocknroll", "obrien", "dogs", "isnt"]),
        ("об'єкт", ["обєкт"]),
        ("foo_bar jean-paul mp3 3.5", ["foo", "bar", "jean", "paul", "mp3", "3", "5"]),
        ("狗", ["狗"]),
        ("2024年iPhone手机", ["2024", "年", "iphone", "手", "手机", "机"]),
        ("สีดำ", ["สี", "สีดํ", "ดํ", "ดํา", "า"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("", []),
    ],
)
def test_words_of_other_scripts(text, words):
    assert words_of(text, UNICODE) == words
    assert not any(mark in "".join(words) for mark in " '’·_.-")


@pytest.mark.parametrize(
    ("code", "one", "other"),
    [
        ("en", "running boats", "run boat"),
        ("fr", "les ÉCOLES", "ecole"),
        ("fr", "les chevaux", "cheval"),
        ("de", "die Häuser", "Haus"),
        ("ru", "на столах", "стол"),
        ("ar", "في الكتاب", "كتاب"),
        ("fa", "کتاب‌ها", "كتاب"),
        ("tr", "İstanbul'da", "istanbul"),
        ("tr", "KIZLAR", "kız"),
    ],
)
def test_a_language_leaves_out_stop_words_and_finds_stems(code, one, other):
    assert analyze(one, Analysis(languages=(code,))) == analyze(other, Analysis(languages=(code,)))
    assert analyze(one, UNICODE) != analyze(other, UNICODE)


def test_accents_stay_where_a_language_of_the_archive_has_letters_of_its_own():
    assert analyze("mål", Analysis(languages=("sv",))) != analyze("mal", Analysis(languages=("sv",)))
    assert analyze("café", Analysis(languages=("en", "sv"))) == ("café",)
    assert analyze("café", ENGLISH) == ("cafe",)


def test_a_text_of_stop_words_keeps_them():
    assert analyze("the who", ENGLISH) == ("the", "who")
    assert analyze("the boat", ENGLISH) == ("boat",)


def test_a_language_changes_only_words_of_its_script():
    both = Analysis(languages=("ru", "en"))
    assert analyze("столы boats 狗", both) == ("стол", "boat", "狗")


@pytest.mark.parametrize("code", languages())
def test_each_language_stems_its_own_stop_words(code):
    analysis = Analysis(languages=(code,))
    assert all(term_of(word, analysis) for word in stop_words(analysis))
    assert bool(stop_words(analysis)) == (code not in ("ja", "ko", "th", "zh"))


@pytest.mark.parametrize("code", TEXTS)
def test_detects_the_language_of_an_archive(code):
    assert detected_languages(TEXTS[code]) == (code,)
    assert default_analysis(TEXTS[code]) == (WORDS if code == "en" else UNICODE)


def test_detects_several_languages_and_none():
    assert detected_languages([*TEXTS["fr"], *TEXTS["en"], *TEXTS["zh"]]) == ("fr", "en", "zh")
    assert detected_languages([*TEXTS["en"] * 50, *TEXTS["zh"]]) == ("en",)
    assert detected_languages(["boat", "dog 4", "", "!"]) == ()
    assert detected_languages([]) == ()


def test_english_tags_with_words_that_other_languages_have_are_english():
    tags = ["arrow up", "sword with shield", "bag of coins", "door to the left", "bat and ball"]
    chance = ["plus math add", "no entry", "bat animal", "die game", "non smoking", "plus size", "do not enter"]
    assert detected_languages([*tags * 5, *chance]) == ("en",)
    french = ["une chauve-souris", "le chien", "la porte", "des pièces", "porte du château", "plus tard"]
    assert detected_languages([*tags * 5, *chance, *french]) == ("en", "fr")


@pytest.mark.parametrize(
    ("texts", "analysis"),
    [(["boat", "mp3 dog's"], WORDS), (["boat", "Straße"], UNICODE), (["l'école"], UNICODE), ([], WORDS)],
)
def test_texts_of_no_known_language_get_the_analysis_that_reads_them(texts, analysis):
    assert default_analysis(texts) == analysis


def test_an_analysis_has_a_name_a_version_and_known_languages():
    assert str(FRENCH) == "unicode-1 (fr)"
    assert parsed_analysis("unicode-1", ("fr",)) == FRENCH
    assert parsed_analysis(str(WORDS)) == WORDS
    for label in ("unicode", "unicode-2", "letters-1", "", "unicode-x"):
        with pytest.raises(UnknownName, match="unicode-1"):
            parsed_analysis(label)
    with pytest.raises(UnknownName, match="fr"):
        parsed_analysis("unicode-1", ("french",))
    for label, chosen in (("unicode-1", ("en", "en")), ("words-1", ("en",))):
        with pytest.raises(RepeatedValue):
            parsed_analysis(label, chosen)


def test_threads_find_the_same_stems():
    texts = [
        f"{stem}{end}" for stem in ("run", "walk", "sitt", "boat", "hors") for end in ("ing", "s", "ed", "es", "er")
    ]
    texts = [f"{text}{number:c}" for number in range(97, 107) for text in texts]
    expected = [analyze(text, FRENCH) for text in texts]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(4):
            term_of.__globals__["_stem"].cache_clear()
            assert list(threads.map(lambda text: analyze(text, FRENCH), texts)) == expected


@pytest.mark.whole_run
def test_does_not_import_torch():
    code = "import sys; from silohash.base.analysis import *; analyze('les écoles', Analysis(languages=('fr',))); "
    subprocess.run([sys.executable, "-c", f"{code}sys.exit('torch' in sys.modules)"], check=True)


@pytest.mark.parametrize("analysis", [WORDS, UNICODE, Analysis(languages=("tr", "th", "en"))], ids=str)
@given(
    text=st.text(
        st.sampled_from("aThe nS's’·ßIİı\u0301\u00ad\u200b\u2028\u3000\x1c\t\n\u00a8\u00a0\u037a船红กา가9-"),
        max_size=40,
    )
    | st.text(max_size=30)
)
def test_the_parts_of_a_text_have_the_terms_of_the_whole(analysis, text):
    words = words_of(text, analysis)
    kept = [word for word in words if word not in stop_words(analysis)]
    assert analyze(text, analysis) == tuple(term_of(word, analysis) for word in kept or words)
