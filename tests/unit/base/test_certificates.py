"""Certificates: what an authority signs, for whom, and what is found about the files of a member."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from silohash.base import certificates
from silohash.base.certificates import (
    AUTHORITY,
    AUTHORITY_KEY,
    MOST_CHARACTERS,
    Authority,
    member_findings,
    new_key,
    read_certificates,
    subject,
    subject_of,
    validity,
    write_request,
)
from silohash.base.errors import (
    AlreadyExists,
    DamagedFile,
    InvalidFile,
    InvalidName,
    MissingFile,
    ReadableByOthers,
)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.new()


def usage(content: bytes) -> list[x509.ObjectIdentifier]:
    extension = x509.load_pem_x509_certificate(content).extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    return list(extension.value)


def bad(folder: Path) -> dict[str, str]:
    found = member_findings(folder / "north.pem", folder / AUTHORITY, "Renew it.")
    return {finding.subject: finding.text for finding in found if not finding.good}


def test_an_authority_is_read_as_it_was_written(authority: Authority, tmp_path: Path) -> None:
    authority.save(tmp_path / "authority")
    assert stat.S_IMODE((tmp_path / "authority" / AUTHORITY_KEY).stat().st_mode) == 0o600
    again = Authority.load(tmp_path / "authority")
    assert again.certificate == authority.certificate
    again.write_member(tmp_path / "north.pem", tmp_path / "north.key", "north")
    assert bad(tmp_path) == {}
    with pytest.raises(MissingFile, match=r"not the folder of an authority"):
        Authority.load(tmp_path)


@pytest.mark.parametrize("name", ["north", "Musée d'Orsay", 'a "b", c+d;<e>\\', "#x", " x", "北京"])
def test_the_subject_names_the_member(authority: Authority, tmp_path: Path, name: str) -> None:
    authority.write_member(tmp_path / "a.pem", tmp_path / "a.key", name)
    assert subject_of(tmp_path / "a.pem") == subject(name)
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600
    context = ssl.create_default_context(cafile=tmp_path / AUTHORITY)
    context.load_cert_chain(tmp_path / "a.pem", tmp_path / "a.key")


@pytest.mark.parametrize("name", ["", "a=b", "a\nb", "x" * (MOST_CHARACTERS + 1)])
def test_names_that_a_certificate_cannot_hold_are_refused(authority: Authority, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        authority.signed(authority.key.public_key(), name)
    with pytest.raises(InvalidName):
        write_request(tmp_path / "a.key", name)
    assert not (tmp_path / "a.key").exists()


def test_a_member_cannot_be_a_server_nor_an_authority(authority: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    member, server = authority.signed(key, "nats.example.org"), authority.signed(key, "nats.example.org", server=True)
    assert usage(member) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert usage(server) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names = x509.load_pem_x509_certificate(server).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["nats.example.org"]
    for content in (member, server):
        extensions = x509.load_pem_x509_certificate(content).extensions
        assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_certificate_does_not_outlive_its_authority() -> None:
    authority = Authority.new(days=5)
    content = authority.signed(authority.key.public_key(), "north", days=100)
    assert x509.load_pem_x509_certificate(content).not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_an_authority_that_has_ended_does_not_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "CLOCKS", timedelta(days=10))
    authority = Authority.new(days=-1)
    with pytest.raises(InvalidFile, match="has ended"):
        authority.signed(authority.key.public_key(), "north")


def test_the_key_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    Authority.new().save(tmp_path)
    (tmp_path / AUTHORITY).write_bytes(authority.certificate.public_bytes(Encoding.PEM))
    with pytest.raises(DamagedFile, match=r"not the key of authority\.pem"):
        Authority.load(tmp_path)


def test_a_key_is_made_once(tmp_path: Path) -> None:
    new_key(tmp_path / "keys" / "a.key")
    before = (tmp_path / "keys" / "a.key").read_bytes()
    with pytest.raises(AlreadyExists):
        new_key(tmp_path / "keys" / "a.key")
    with pytest.raises(AlreadyExists):
        write_request(tmp_path / "keys" / "a.key", "north")
    assert (tmp_path / "keys" / "a.key").read_bytes() == before


def test_a_key_that_others_can_read_does_not_sign(authority: Authority, tmp_path: Path) -> None:
    authority.save(tmp_path)
    (tmp_path / AUTHORITY_KEY).chmod(0o644)
    with pytest.raises(ReadableByOthers, match=rf"chmod 600 .*{AUTHORITY_KEY}"):
        Authority.load(tmp_path)


def test_a_request_is_signed_for_the_name_that_is_given(authority: Authority, tmp_path: Path) -> None:
    request = write_request(tmp_path / "north.key", "hub")
    (tmp_path / "north.pem").write_bytes(authority.sign_request(request, "north"))
    assert subject_of(tmp_path / "north.pem") == subject("north")
    ssl.create_default_context().load_cert_chain(tmp_path / "north.pem", tmp_path / "north.key")


def test_a_request_that_was_changed_is_refused(authority: Authority, tmp_path: Path) -> None:
    request = write_request(tmp_path / "north.key", "north")
    content = bytearray(x509.load_pem_x509_csr(request.read_bytes()).public_bytes(Encoding.DER))
    content[-1] ^= 1
    changed = x509.load_der_x509_csr(bytes(content)).public_bytes(Encoding.PEM)
    request.write_bytes(changed)
    with pytest.raises(DamagedFile, match="not made with the secret key"):
        authority.sign_request(request, "north")
    with pytest.raises(MissingFile):
        authority.sign_request(tmp_path / "none.csr", "north")


def test_the_end_of_a_certificate_is_named(authority: Authority, tmp_path: Path) -> None:
    authority.write_member(tmp_path / "north.pem", tmp_path / "north.key", "north")
    path, now = tmp_path / "north.pem", datetime.now(UTC)
    assert validity(path, "Renew it.", now).good
    for days, text in ((715, "14 days from now. Renew it."), (731, "expired on"), (-1, "the clock of this machine")):
        finding = validity(path, "Renew it.", now + timedelta(days=days))
        assert not finding.good
        assert text in finding.text


def test_another_authority_is_named(authority: Authority, tmp_path: Path) -> None:
    authority.write_member(tmp_path / "north.pem", tmp_path / "north.key", "north")
    own = (tmp_path / AUTHORITY).read_bytes()
    Authority.new().save(tmp_path)
    assert bad(tmp_path) == {"authority": f"north.pem was signed by another authority than {AUTHORITY}. Renew it."}
    (tmp_path / AUTHORITY).write_bytes((tmp_path / AUTHORITY).read_bytes() + own)
    assert bad(tmp_path) == {}, "one of two is enough"
    assert len(read_certificates(tmp_path / AUTHORITY)) == 2
