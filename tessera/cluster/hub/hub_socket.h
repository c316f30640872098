// Stream sockets at the hub's addresses: `unix:NAME`, which only processes of one user get through, or `tcp:HOST:PORT`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::cluster {

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

// Throws IoError naming the address, also where its host is not found within `timeout_ms`, InvalidArgument for one that
// stands for every interface of the host. Sets `address` to the one listened at, where port 0 has become a real one.
Socket listen_at(std::string& address, int64_t timeout_ms);
// Whether the host of a tcp address is a name that stands for a loopback address here, as a host's own name often does
// in its /etc/hosts: nobody elsewhere reaches who listens there. Throws as listen_at() does.
bool is_name_of_loopback(const std::string& address, int64_t timeout_ms);
// Retries until somebody listens and takes the connection. Throws IoError after `timeout_ms`, those among them in which
// the host's name is looked up, and once `gives_up` says so.
Socket connect_to(const std::string& address, int64_t timeout_ms, const std::function<bool()>& gives_up = {});
// The next peer that waits, without waiting for one; an empty socket where there is none. errno tells why then.
Socket accept_from(const Socket& listener);
// False for a local socket whose other side is another user's.
bool is_same_user(const Socket& socket);
// The address of the host on its other side, without the port; of a local socket "".
std::string host_of(const Socket& socket);
bool is_unix_address(std::string_view address);

}  // namespace tessera::cluster
