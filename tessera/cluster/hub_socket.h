// The hub's wire: stream sockets that carry frames of a kind and a text, each u32 little-endian length of what follows,
// one byte of kind, the text. Texts of several fields separate them by a zero byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::cluster {

// From a rank: join, set, get, fail, end. From the hub: refused, all joined, value, failed, ended, all ended.
enum class FrameKind : char {
  kJoin = 'J',
  kSet = 'S',
  kGet = 'G',
  kFail = 'F',
  kEnd = 'E',
  kRefused = 'R',
  kAllJoined = 'A',
  kValue = 'V',
  kAllEnded = 'Z',
};

struct Frame {
  FrameKind kind;
  std::string body;
};

std::string join_fields(const std::vector<std::string>& fields);
std::vector<std::string> split_fields(std::string_view body);

// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Throws IoError naming the address. Sets `address` to the one listened at, where port 0 has become a real one.
Socket listen_at(std::string& address);
// Retries until somebody listens. Throws IoError after `timeout_ms`.
Socket connect_to(const std::string& address, int64_t timeout_ms);
// Waits for a peer; an empty socket when none came or it belongs to another user of this host.
Socket accept_from(const Socket& listener);
// False when the connection is gone.
bool send_frame(const Socket& socket, FrameKind kind, std::string_view body);

// Collects what arrives on a socket into frames.
class FrameReader {
 public:
  // Reads what is there, waiting for at least one byte. False at the connection's end or when it carries no frames.
  bool read_some(const Socket& socket);
  // Takes the next whole frame.
  bool next(Frame& frame);
  // What arrived was no frame: the other side speaks another protocol.
  bool is_foreign() const { return is_foreign_; }

 private:
  std::string bytes_;
  bool is_foreign_ = false;
};

}  // namespace tessera::cluster
