// TlsStream: bytes of an open TLS connection, moved without waiting between its socket and the caller's memory. Owns
// both; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tessera/cluster/tls/tls_session.h"

namespace tessera::cluster {

// After so many bytes with one key a new one is taken: AES-GCM is safe up to 2^24.5 records (RFC 8446, 5.5).
inline constexpr int64_t kBytesPerKey = int64_t{1} << 36;

class TlsStream {
 public:
  // `session`: as TlsSession::release() gives it. `socket` does not block.
  TlsStream(SslPointer session, int socket, int64_t bytes_per_key = kBytesPerKey);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  enum class Result : uint8_t {
    kMoved,
    kNotNow,  // the socket has nothing, or takes nothing
    kEnded,   // the other side has said that it sends no more
    kFailed,  // reason() says why
  };
  // Reads up to `size` bytes, at least 1.
  Result read(void* into, size_t size, size_t& count);
  // Writes up to `size` bytes, at least 1. After kNotNow the next call begins with the same bytes, and as many at
  // least.
  Result write(const void* from, size_t size, size_t& count);
  // Says that nothing more will be sent, as far as the socket takes it.
  void end_sending();
  // Whether the other host has got all that was sent.
  bool is_delivered() const;

  int socket() const { return socket_; }
  // What has failed, in words that follow "the connection".
  const std::string& reason() const { return reason_; }

 private:
  Result result_of(int result);

  SslPointer session_;
  int socket_;
  int64_t bytes_per_key_;
  int64_t bytes_of_key_ = 0;
  bool is_write_pending_ = false;
  std::string reason_;
};

}  // namespace tessera::cluster
