"""TLS 1.3 by a key that both sides know beforehand, which Python's own ssl has from 3.13 on only: OpenSSL itself, as a function of bytes."""

import ctypes

_SSL, _CRYPTO = ctypes.CDLL("libssl.so.3"), ctypes.CDLL("libcrypto.so.3")
_CLIENT = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint)
_SERVER = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint)
_TLS_1_3, _SET_LEAST, _WANTS_BYTES = 0x304, 123, 2  # TLS1_3_VERSION, SSL_CTRL_SET_MIN_PROTO_VERSION, SSL_ERROR_WANT_READ


def _function(library, name, result, *arguments):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


_pointer, _int, _bytes = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_method = _function(_SSL, "TLS_method", _pointer)
_context_new = _function(_SSL, "SSL_CTX_new", _pointer, _pointer)
_context_free = _function(_SSL, "SSL_CTX_free", None, _pointer)
_context_control = _function(_SSL, "SSL_CTX_ctrl", ctypes.c_long, _pointer, _int, ctypes.c_long, _pointer)
_set_suites = _function(_SSL, "SSL_CTX_set_ciphersuites", _int, _pointer, _bytes)
_set_num_tickets = _function(_SSL, "SSL_CTX_set_num_tickets", _int, _pointer, ctypes.c_size_t)
_set_client = _function(_SSL, "SSL_CTX_set_psk_client_callback", None, _pointer, _CLIENT)
_set_server = _function(_SSL, "SSL_CTX_set_psk_server_callback", None, _pointer, _SERVER)
_new = _function(_SSL, "SSL_new", _pointer, _pointer)
_free = _function(_SSL, "SSL_free", None, _pointer)
_connect_state = _function(_SSL, "SSL_set_connect_state", None, _pointer)
_accept_state = _function(_SSL, "SSL_set_accept_state", None, _pointer)
_set_bio = _function(_SSL, "SSL_set_bio", None, _pointer, _pointer, _pointer)
_handshake = _function(_SSL, "SSL_do_handshake", _int, _pointer)
_read = _function(_SSL, "SSL_read", _int, _pointer, _pointer, _int)
_write = _function(_SSL, "SSL_write", _int, _pointer, _bytes, _int)
_error = _function(_SSL, "SSL_get_error", _int, _pointer, _int)
_bio_new = _function(_CRYPTO, "BIO_new", _pointer, _pointer)
_bio_memory = _function(_CRYPTO, "BIO_s_mem", _pointer)
_bio_pending = _function(_CRYPTO, "BIO_ctrl_pending", ctypes.c_size_t, _pointer)
_bio_read = _function(_CRYPTO, "BIO_read", _int, _pointer, _pointer, _int)
_bio_write = _function(_CRYPTO, "BIO_write", _int, _pointer, _bytes, _int)
_clear_errors = _function(_CRYPTO, "ERR_clear_error", None)


class PskTls:
    """One side of a connection. `name`: which key is meant, for both to know. What arrives goes into receive(), which returns what was said; what is
    to be sent comes from output()."""

    def __init__(self, name, key, is_server=False):
        self.is_open = self.has_ended = False

        def use(_session, _hint, identity, _most, into, _most_bytes):
            ctypes.memmove(identity, name + b"\0", len(name) + 1)
            ctypes.memmove(into, key, len(key))
            return len(key)

        def find(_session, identity, into, _most_bytes):
            if identity != name:
                return 0
            ctypes.memmove(into, key, len(key))
            return len(key)

        self._callback = _SERVER(find) if is_server else _CLIENT(use)
        self._context = _context_new(_method())
        _context_control(self._context, _SET_LEAST, _TLS_1_3, None)
        assert _set_suites(self._context, b"TLS_AES_128_GCM_SHA256") == 1
        _set_num_tickets(self._context, 0)
        (_set_server if is_server else _set_client)(self._context, self._callback)
        self._session = _new(self._context)
        self._in, self._out = _bio_new(_bio_memory()), _bio_new(_bio_memory())
        _set_bio(self._session, self._in, self._out)
        (_accept_state if is_server else _connect_state)(self._session)

    def __del__(self):
        _free(self._session)
        _context_free(self._context)

    def _may_go_on(self, result):
        """Whether it only waits for more bytes; else the connection is at its end."""
        self.has_ended = _error(self._session, result) != _WANTS_BYTES
        return not self.has_ended

    def receive(self, data=b""):
        """Goes on with what has come; a client's first call, with nothing, makes its first message."""
        _clear_errors()
        if data:
            _bio_write(self._in, data, len(data))
        if not self.is_open:
            result = _handshake(self._session)
            if result != 1:
                self._may_go_on(result)
                return b""
            self.is_open = True
        said, buffer = b"", ctypes.create_string_buffer(1 << 14)
        while not self.has_ended:
            count = _read(self._session, buffer, len(buffer))
            if count > 0:
                said += buffer.raw[:count]
            else:
                self._may_go_on(count)
                break
        return said

    def send(self, data):
        _clear_errors()
        if data:
            assert _write(self._session, data, len(data)) == len(data)

    def output(self):
        buffer = ctypes.create_string_buffer(max(_bio_pending(self._out), 1))
        count = _bio_read(self._out, buffer, len(buffer))
        return buffer.raw[:max(count, 0)]
