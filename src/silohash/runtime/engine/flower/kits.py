"""Make the kits of a federation that Flower connects: the server's certificate, the keys of the silos, and a secret.

Silos check the server's certificate, and the server checks that each silo holds its key. Whoever starts runs shares a secret
with the server.
"""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from silohash.files import folder_beside, write_bytes, write_json
from silohash.forms import of_json, reading
from silohash.runtime.sites.kits import (
    FLOWER_FILE,
    LEADER,
    LOCAL,
    SERVER,
    SITE_FILE,
    STARTUP,
    Training,
    new_silo_key,
    write_site,
)
from silohash.types import UserError

AUTHORITY, CERTIFICATE, CERTIFICATE_KEY = "rootCA.pem", "server.crt", "server.key"
SILO_KEY, SECRET = "silo.key", "secret.key"
SILOS = "silos"
"""Folder of the silos' public keys in the kit of the server, one file per silo that may connect."""

KEY_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign",
    "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Connection:
    """What a kit says about the connection of its member.

    Attributes:
        kit: the folder of the kit.
        host: name or address of the server.
        port: port of the server.
    """

    kit: Path
    host: str
    port: int

    @classmethod
    def of(cls, kit: Path) -> Connection:
        """Read the file of a kit.

        Raises:
            UserError: if the folder is not a kit, or the file is damaged.
        """
        path = kit / STARTUP / FLOWER_FILE
        with reading(path, missing="Make kits with: silohash federation kits", remedy="Make new kits."):
            return cls(kit.resolve(), **asdict(of_json(path.read_text(encoding="utf-8"), _Address)))

    @property
    def startup(self) -> Path:
        """The folder of the keys and certificates."""
        return self.kit / STARTUP

    @property
    def address(self) -> str:
        """The address of the server, as Flower writes it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_server(self) -> bool:
        """Whether this is the kit of the server."""
        return (self.startup / CERTIFICATE).exists()

    @property
    def is_silo(self) -> bool:
        """Whether this is the kit of a silo."""
        return (self.kit / LOCAL / SITE_FILE).exists()

    def secret(self) -> bytes:
        """Return the secret that the server shares with whoever starts runs.

        Raises:
            UserError: if the kit has none.
        """
        path = self.startup / SECRET
        with reading(path, missing=f"Give the kit that starts runs, such as museums/{LEADER}."):
            return path.read_bytes()

    def authority(self) -> bytes:
        """Return the certificate that proves those of the server, in PEM form."""
        with reading(self.startup / AUTHORITY, remedy="Make new kits."):
            return (self.startup / AUTHORITY).read_bytes()

    def silo_keys(self) -> dict[str, bytes]:
        """Return the public keys of the silos that may connect, in PEM form, by the names of the silos."""
        return {path.stem: path.read_bytes() for path in sorted((self.startup / SILOS).glob("*.pub"))}


@dataclass(frozen=True)
class _Address:
    host: str
    port: int


def write_flower_kits(folder: Path, silos: Sequence[str], training: Training) -> None:
    """Write one kit per silo, one for the server and one for whoever starts runs, into a new folder.

    The kits of silos hold a common key for encrypted sums, if the packages for them are installed. The key of the authority
    is not kept, so nobody can make another certificate for the server.

    Args:
        folder: the new folder. It gets ``server``, ``leader`` and one folder per silo.
        silos: names of the silos.
        training: where silos find the server.

    Raises:
        UserError: if a name cannot be used.
    """
    _check_names(silos)
    authority, certificate, key = _certificates(training)
    secret = secrets.token_hex(32).encode()
    silo_key = new_silo_key()
    with folder_beside(folder) as new:
        for member in (SERVER, LEADER, *silos):
            startup = new / member / STARTUP
            write_json(startup / FLOWER_FILE, {"host": training.host, "port": training.port})
            write_bytes(startup / AUTHORITY, authority)
        for member in (SERVER, LEADER):
            write_bytes(new / member / STARTUP / SECRET, secret, private=True)
        write_bytes(new / SERVER / STARTUP / CERTIFICATE, certificate)
        write_bytes(new / SERVER / STARTUP / CERTIFICATE_KEY, key, private=True)
        for silo in silos:
            own = ec.generate_private_key(ec.SECP384R1())
            private = own.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
            public = own.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            write_bytes(new / silo / STARTUP / SILO_KEY, private, private=True)
            write_bytes(new / SERVER / STARTUP / SILOS / f"{silo}.pub", public)
            write_site(new / silo, silo, silo_key)


def _check_names(silos: Sequence[str]) -> None:
    for name in silos:
        if not NAME.fullmatch(name) or name in (SERVER, LEADER):
            raise UserError(
                f'The kits cannot be made: a silo cannot have the name "{name}". Use at most 64 letters, digits, "_", "-" '
                f'and ".", and neither "{SERVER}" nor "{LEADER}".'
            )
    if repeated := [name for name in silos if silos.count(name) > 1]:
        raise UserError(f'The kits cannot be made: the name "{repeated[0]}" is given twice. Choose other names.')


def _certificates(training: Training) -> tuple[bytes, bytes, bytes]:
    """Return the certificate of a new authority, that of the server, and the server's key, in PEM form."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "silohash authority")])
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "silohash server")])
    usage = dict.fromkeys(KEY_USAGES, False)
    authority = (
        _builder(authority_name, authority_name, authority_key, training)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**{**usage, "key_cert_sign": True, "crl_sign": True}), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(server_name, authority_name, key, training)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**{**usage, "digital_signature": True}), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(training.host)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return authority.public_bytes(Encoding.PEM), certificate.public_bytes(Encoding.PEM), private


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, training: Training
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=training.valid_days))
    )


def _alternative(host: str) -> x509.GeneralName:
    """Return the name or the address of a server as a certificate holds it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
