// PacketEnd: one end of a way between two hosts, over which datagrams go that nobody may cut: how large they may be is
// found by sending them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera::tools {

class PacketEnd {
 public:
  // At an address of this host, at a port that is free. Throws IoError.
  explicit PacketEnd(const std::string& address);
  ~PacketEnd();
  PacketEnd(const PacketEnd&) = delete;
  PacketEnd& operator=(const PacketEnd&) = delete;

  uint16_t port() const;
  // Packets go there and come from there alone. Throws IoError.
  void connect(const std::string& address, uint16_t port);
  // Sends a packet of so many bytes with its headers, if the system takes it: a packet may be lost.
  void send(int64_t packet_bytes);
  // Whether one of so many bytes comes within the time.
  bool receives(int64_t packet_bytes, int limit_ms);

 private:
  int64_t header_bytes() const;

  int family_ = 0;
  int fd_ = -1;
};

// The largest number from `least` to `most` that passes, where all below one that passes do; 0 where `least` does not.
int64_t largest_that(int64_t least, int64_t most, const std::function<bool(int64_t)>& passes);

}  // namespace tessera::tools
