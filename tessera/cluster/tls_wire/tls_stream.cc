#include "tessera/cluster/tls_wire/tls_stream.h"

#include <linux/sockios.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera::cluster {
namespace {

// Read from the socket at a time: several records of 16 KiB by one call.
constexpr size_t kReadBytes = size_t{128} << 10;

// OpenSSL's own kind of BIO for sockets raises SIGPIPE where the peer has gone.
int socket_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

bool may_try_again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

int read_socket(BIO* bio, char* into, size_t size, size_t* count) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(socket_of(bio), into, size, MSG_DONTWAIT);
  if (got < 0 && may_try_again(errno)) BIO_set_retry_read(bio);
  if (got == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  *count = got > 0 ? static_cast<size_t>(got) : 0;
  return got > 0 ? 1 : static_cast<int>(got);
}

int write_socket(BIO* bio, const char* from, size_t size, size_t* count) {
  BIO_clear_retry_flags(bio);
  const ssize_t put = send(socket_of(bio), from, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (put < 0 && may_try_again(errno)) BIO_set_retry_write(bio);
  *count = put > 0 ? static_cast<size_t>(put) : 0;
  return put > 0 ? 1 : -1;
}

long control_socket(BIO* bio, int command, long /*number*/, void* /*pointer*/) {  // NOLINT(google-runtime-int)
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* make_method() {
  BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "a socket");
  check(method != nullptr, "OpenSSL makes a kind of BIO");
  BIO_meth_set_read_ex(method, read_socket);
  BIO_meth_set_write_ex(method, write_socket);
  BIO_meth_set_ctrl(method, control_socket);
  return method;
}

BIO* make_bio(int socket) {
  static const BIO_METHOD* const method = make_method();
  BIO* const made = BIO_new(method);
  if (made == nullptr) throw IoError("no memory for a connection");
  BIO_set_data(made, reinterpret_cast<void*>(static_cast<intptr_t>(socket)));
  BIO_set_init(made, 1);
  return made;
}

}  // namespace

TlsStream::TlsStream(SslPointer session, int socket, int64_t bytes_per_key)
    : session_(std::move(session)), socket_(socket), bytes_per_key_(bytes_per_key) {
  BIO* const bio = make_bio(socket);
  SSL_set_bio(session_.get(), bio, bio);
  // Tensors come one after the other: buffers stay.
  SSL_clear_mode(session_.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_set_default_read_buffer_len(session_.get(), kReadBytes);
  SSL_set_read_ahead(session_.get(), 1);
}

TlsStream::~TlsStream() { close(socket_); }

TlsStream::Result TlsStream::result_of(int result) {
  const int error = SSL_get_error(session_.get(), result);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) return Result::kNotNow;
  if (error == SSL_ERROR_ZERO_RETURN) return Result::kEnded;
  const int system_error = errno;
  const int what = ERR_GET_REASON(ERR_peek_error());
  if (error == SSL_ERROR_SSL && what == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
    reason_ = "has ended without a word";
  } else if (error == SSL_ERROR_SSL && what == SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC) {
    reason_ = "has been tampered with: what came is not what was sent";
  } else if (error == SSL_ERROR_SSL && what == SSL_R_SSLV3_ALERT_BAD_RECORD_MAC) {
    reason_ = "has been tampered with: what was sent is not what came";
  } else if (error == SSL_ERROR_SYSCALL) {
    reason_ = std::string("has ended: ") + std::strerror(system_error);
  } else {
    reason_ = "has failed";
  }
  const std::string words = take_openssl_error();
  if (!words.empty()) reason_ += " (" + words + ")";
  return Result::kFailed;
}

TlsStream::Result TlsStream::read(void* into, size_t size, size_t& count) {
  ERR_clear_error();
  errno = 0;
  const int result = SSL_read_ex(session_.get(), into, size, &count);
  return result == 1 ? Result::kMoved : result_of(result);
}

TlsStream::Result TlsStream::write(const void* from, size_t size, size_t& count) {
  ERR_clear_error();
  errno = 0;
  if (bytes_of_key_ >= bytes_per_key_ && !is_write_pending_) {
    check(SSL_key_update(session_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1, "an open connection takes another key");
    bytes_of_key_ = 0;
  }
  const int result = SSL_write_ex(session_.get(), from, size, &count);
  is_write_pending_ = result != 1;
  if (result != 1) return result_of(result);
  bytes_of_key_ += static_cast<int64_t>(count);
  return Result::kMoved;
}

void TlsStream::end_sending() {
  ERR_clear_error();
  if (!is_write_pending_) SSL_shutdown(session_.get());
  ERR_clear_error();
  shutdown(socket_, SHUT_WR);
}

bool TlsStream::is_delivered() const {
  int waiting = 0;
  return ioctl(socket_, SIOCOUTQ, &waiting) != 0 || waiting == 0;
}

}  // namespace tessera::cluster
