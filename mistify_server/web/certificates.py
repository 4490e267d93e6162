"""TLS for HTTP, with a certificate that may be replaced while the server runs."""

import logging
import ssl

from mistify.wire.listening import Certificate

_log = logging.getLogger(__name__)


class RenewedTls:
    """The TLS settings for new connections, with the certificate that its files have then.

    Raises:
        OSError: A file cannot be read.
        ssl.SSLError: The files do not belong together.
    """

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._stamp = self._current_stamp()
        self._context = self._loaded()

    def __call__(self) -> ssl.SSLContext:
        """Return the settings; the previous ones while the files cannot be used."""
        try:
            stamp = self._current_stamp()
        except OSError:  # it is being replaced
            return self._context
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._context = self._loaded()
            except (OSError, ssl.SSLError) as error:
                _log.warning("the previous certificate stays in use, the new one cannot be used: %s", error)
        return self._context

    def _current_stamp(self) -> tuple[tuple[int, int, int], ...]:
        """Return a value that changes with the files."""
        own = self._certificate
        states = (path.stat() for path in (own.chain, own.key, own.client_authority) if path is not None)
        return tuple((state.st_ino, state.st_size, state.st_mtime_ns) for state in states)

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        # Without a password, OpenSSL would ask for one at the terminal, and the server would wait for it.
        context.load_cert_chain(self._certificate.chain, self._certificate.key, password="")
        if self._certificate.client_authority is not None:
            context.load_verify_locations(self._certificate.client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context
