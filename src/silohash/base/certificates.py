"""Certificates of the members of a federation: the same for training and for the search.

A federation has one authority. It signs one certificate per member, whose subject holds the member's name. A member that
makes its own secret key sends the authority a request with the public key.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes as SigningKey
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes as IssuerKey
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes as PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from silohash.base.attempts import attempted
from silohash.base.errors import AlreadyExists, InvalidFile, InvalidName
from silohash.base.files import check_private, write_bytes, write_secret
from silohash.base.forms import reading

ORGANIZATION = "silohash"
"""Organization in the subject of every member."""

AUTHORITY_FOLDER, AUTHORITY, AUTHORITY_KEY = "authority", "authority.pem", "authority-key.pem"
"""Folder of an authority, and its files. With the key, anyone can be admitted."""

KIT: Mapping[str, str] = {
    "certificate": "startup/client.crt", "key": "startup/client.key", "authority": "startup/rootCA.pem",
}  # fmt: skip
"""Files of the training kit of a silo, by the names that they have in the file of a member."""

MOST_CHARACTERS = 64
"""Most characters of a name in a certificate, which X.509 limits."""

AUTHORITY_DAYS, VALID_DAYS, WARNING_DAYS = 3650, 730, 30
CLOCKS = timedelta(hours=1)
"""How much the clocks of members may differ when a certificate is new."""

PEM = "Use a PEM file."
NEW_AUTHORITY = "Make a new authority, and new certificates for all members."
HUB = "hub"
"""Name of the hub in its certificate, which no silo can have."""


@dataclass(frozen=True)
class Finding:
    """The result of one check of a member, and whether the member can take part as far as this is concerned."""

    subject: str
    text: str
    good: bool


@dataclass(frozen=True)
class Authority:
    """Sign the certificates of a federation."""

    certificate: x509.Certificate
    key: SigningKey

    @classmethod
    def new(cls, days: int = AUTHORITY_DAYS) -> Self:
        """Return a new authority."""
        key, name = ec.generate_private_key(ec.SECP256R1()), _subject(ORGANIZATION)
        names = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
        usage = {**dict.fromkeys(names, False), "digital_signature": True, "key_cert_sign": True, "crl_sign": True}
        usage["decipher_only"] = False
        certificate = (
            _builder(name, name, key.public_key(), key.public_key(), datetime.now(UTC) + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**usage), critical=True)
            .sign(key, SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the authority whose files are in a folder.

        Raises:
            UserError: If a file is missing or damaged.
        """
        missing = f"{folder} is not the folder of an authority, such as museums/authority."
        certificate, path = read_certificates(folder / AUTHORITY, missing=missing)[0], folder / AUTHORITY_KEY
        with reading(path, remedy=PEM, missing=missing):
            key: SigningKey = load_pem_private_key(path.read_bytes(), None)  # type: ignore[assignment]  # of an authority
            if key.public_key() != certificate.public_key():
                raise ValueError(f"it is not the key of {AUTHORITY}")
        check_private(path)
        return cls(certificate, key)

    def save(self, folder: Path) -> None:
        """Write the files of the authority into a folder."""
        write_bytes(folder / AUTHORITY_KEY, _key_bytes(self.key), private=True)
        write_bytes(folder / AUTHORITY, self.certificate.public_bytes(Encoding.PEM))

    def signed(self, key: PublicKey, name: str, *, server: bool = False, days: int = VALID_DAYS) -> bytes:
        """Return the certificate for a member's public key as PEM. That of a server is for the host of that name.

        Raises:
            UserError: If the name cannot be in a certificate, or the authority has ended.
        """
        end = self.certificate.not_valid_after_utc
        if end < datetime.now(UTC):
            raise InvalidFile(f"The authority has ended on {end:%Y-%m-%d}. {NEW_AUTHORITY}")
        until = min(datetime.now(UTC) + timedelta(days=days), end)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = _builder(_subject(name), self.certificate.subject, key, self.key.public_key(), until)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if server:
            dns = x509.DNSName(name)
            host = attempted(lambda: x509.IPAddress(ipaddress.ip_address(name)), ValueError, otherwise=dns)
            builder = builder.add_extension(x509.SubjectAlternativeName([host]), critical=False)
        return builder.sign(self.key, SHA256()).public_bytes(Encoding.PEM)

    def write_member(self, certificate: Path, key: Path, name: str, *, server: bool = False) -> None:
        """Make a secret key, sign its certificate, and write both, with the certificate of the authority beside them.

        The arguments are those of `signed`.
        """
        write_bytes(certificate, self.signed(new_key(key).public_key(), name, server=server))
        write_bytes(certificate.parent / AUTHORITY, self.certificate.public_bytes(Encoding.PEM))

    def sign_request(self, request: Path, name: str, *, server: bool = False, days: int = VALID_DAYS) -> bytes:
        """Return the certificate for the public key in a request. The name is that given here, whatever the request says.

        Raises:
            UserError: If the request cannot be read, was not made with its key, or the name cannot be in a certificate.
        """
        with reading(request, remedy="Make it again with --new-key.", missing="Make it with --new-key."):
            found = x509.load_pem_x509_csr(request.read_bytes())
            if not found.is_signature_valid:
                raise ValueError("it was not made with the secret key that belongs to it")
        return self.signed(found.public_key(), name, server=server, days=days)


def new_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Create a secret key in a new file that only its owner can read, and return it.

    Raises:
        UserError: If the file exists or cannot be written.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    if path.exists():
        raise AlreadyExists(
            f"{path} exists already, and a new key would make its certificate useless. Remove the file first."
        )
    write_secret(path, _key_bytes(key))
    return key


def write_request(key: Path, name: str) -> Path:
    """Make a secret key, write the request for its certificate beside it, and return the path of the request.

    Raises:
        UserError: If the key exists, a file cannot be written, or the name cannot be in a certificate.
    """
    request, path = x509.CertificateSigningRequestBuilder().subject_name(_subject(name)), key.with_suffix(".csr")
    write_bytes(path, request.sign(new_key(key), SHA256()).public_bytes(Encoding.PEM))
    return path


def read_certificates(path: Path, *, missing: str = "Correct its path.") -> list[x509.Certificate]:
    """Return the certificates in a file, that of the member first.

    Raises:
        UserError: If it is missing or does not hold certificates.
    """
    with reading(path, remedy=PEM, missing=missing):
        return x509.load_pem_x509_certificates(path.read_bytes())


def subject_of(path: Path) -> str:
    """Return the subject of a member's certificate, in the form of RFC 4514, by which others know the member.

    Raises:
        UserError: If the file is missing or does not hold a certificate.
    """
    return read_certificates(path)[0].subject.rfc4514_string()


def subject(name: str) -> str:
    """Return the subject of the certificates that an authority signs for a name.

    Raises:
        UserError: If the name cannot be in a certificate.

    Example:
        >>> subject("north")
        'O=silohash,CN=north'
    """
    return _subject(name).rfc4514_string()


def validity(path: Path, remedy: str, now: datetime | None = None) -> Finding:
    """Return whether the first certificate in a file is valid, and for how long.

    Raises:
        UserError: If the file is missing or does not hold a certificate.
    """
    certificate, now = read_certificates(path)[0], now or datetime.now(UTC)
    left, end = certificate.not_valid_after_utc - now, f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    if now < certificate.not_valid_before_utc:
        begin = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        return Finding(path.name, f"valid from {begin}, and the clock of this machine is before that. Set it.", False)
    if left < timedelta():
        return Finding(path.name, f"expired on {end}. {remedy}", False)
    if left.days < WARNING_DAYS:
        return Finding(path.name, f"valid until {end}, {left.days} days from now. {remedy}", False)
    return Finding(path.name, f"valid until {end}", True)


def member_findings(
    certificate: Path, authority: Path | None, remedy: str, now: datetime | None = None
) -> Iterator[Finding]:
    """Yield whether a member's certificate and that of the authority are valid, and whether they belong together.

    A remedy says what to do about a certificate of the member that is not.

    Raises:
        UserError: If a file is missing or does not hold a certificate.
    """
    yield validity(certificate, remedy, now)
    if authority is None:
        return
    yield validity(authority, NEW_AUTHORITY, now)
    own, trusted = read_certificates(certificate), read_certificates(authority)
    if not any(_issued(one, by) for one in own for by in trusted):
        text = f"{certificate.name} was signed by another authority than {authority.name}. {remedy}"
        yield Finding("authority", text, False)


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _builder(
    name: x509.Name, issuer: x509.Name, key: PublicKey, issuer_key: IssuerKey, until: datetime
) -> x509.CertificateBuilder:
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - CLOCKS)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(identifier, critical=False)
    )


def _subject(name: str) -> x509.Name:
    if not 0 < len(name) <= MOST_CHARACTERS or "=" in name or not name.isprintable():
        raise InvalidName(
            f'A certificate cannot hold the name "{name}". Choose one of at most {MOST_CHARACTERS} printable characters '
            "without =."
        )
    attributes = {NameOID.COMMON_NAME: name, NameOID.ORGANIZATION_NAME: ORGANIZATION}
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes.items()])


def _key_bytes(key: SigningKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
