"""TLS of a member's connection to the bus: its certificates, and what an error of the connection means."""

from __future__ import annotations

import ssl
from contextlib import suppress

from silohash.base.certificates import Finding, member_findings, read_certificates, subject_of
from silohash.base.errors import UserError
from silohash.base.files import check_private
from silohash.base.forms import damaged, reading
from silohash.service.config import BusSettings

NO_FILE = "Correct the path in [bus], or make a key and a request for the certificate with --new-key."
RENEW = "Remove the key, make a new one with --new-key, and have its request signed: silohash federation sign."


def tls_context(settings: BusSettings) -> ssl.SSLContext:
    """Return the TLS settings of connections. The certificate and the host name of the server are always verified."""
    for path in filter(None, (settings.authority, settings.certificate)):
        read_certificates(path, missing=NO_FILE)
    with reading(settings.key, missing=NO_FILE):
        settings.key.read_bytes()
    check_private(settings.key)
    try:
        context = ssl.create_default_context(cafile=settings.authority)
        context.load_cert_chain(settings.certificate, settings.key, password="")
    except ssl.SSLError as error:
        remedy = f"Use PEM files, and the key {settings.key} that belongs to the certificate, without a password."
        raise damaged(settings.certificate, error.reason or str(error), remedy) from error
    return context


def findings(settings: BusSettings) -> list[Finding]:
    """Return whether the certificates of a member are valid, and belong together. See `member_findings`."""
    return list(member_findings(settings.certificate, settings.authority, RENEW))


def explained(error: Exception, settings: BusSettings) -> str:
    """Return what an error of a member's connection means. The cause that the member's own files show comes first."""
    text = str(error) or type(error).__name__
    ended = isinstance(error, ConnectionResetError | BrokenPipeError) or "authorization violation" in text.lower()
    if not ended and not isinstance(error, ssl.SSLError):
        return text
    with suppress(UserError):
        if bad := [f"{finding.subject}: {finding.text}" for finding in findings(settings) if not finding.good]:
            return f"{bad[0]} ({text})"
    if isinstance(error, ssl.SSLCertVerificationError):
        trusted = settings.authority or "the operating system"
        return (
            f"The server's certificate cannot be trusted ({error.verify_message}). It must be for the host in [bus] servers "
            f"and valid, and signed by the authority in {trusted}."
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"The server refuses the certificate {settings.certificate}, as of another authority or not valid ({text})."
        )
    return (
        f"The server ended the connection of the member {subject_of(settings.certificate)} ({text}). If it does so again, "
        "enter this subject in the hub's file, [silos], and write the config of the server again."
    )
