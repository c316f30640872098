#include "tessera/cluster/tls_wire/test_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/host_port.h"

namespace tessera::cluster {

void MemoryStore::set(const std::string& name, const std::string& value) {
  const std::string told = told_ ? told_(name, value) : value;
  const std::lock_guard lock(mutex_);
  values_.emplace(name, told);
  changed_.notify_all();
}

std::string MemoryStore::get(const std::string& name, int64_t timeout_ms) {
  if (auto found = find(name, timeout_ms)) return *found;
  throw IoError("nobody has set {}", name);
}

std::optional<std::string> MemoryStore::find(const std::string& name, int64_t limit_ms) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::milliseconds(limit_ms), [&] { return values_.contains(name); });
  const auto found = values_.find(name);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

comm::Secret test_secret(char letter) { return {std::string(32, letter), "the test"}; }

MeetingOptions test_meeting(int rank, int size, int64_t timeout_ms) {
  return {.rank = rank,
          .place = {.job_id = "a job", .generation = 7, .size = size, .secret = test_secret()},
          .address = "127.0.0.1",
          .tls = {.secret = test_secret(), .certificates = std::nullopt},
          .timeout_ms = timeout_ms};
}

std::vector<std::string> run_test_ranks(int size, const std::function<void(TestRank&)>& f,
                                        const TestJobOptions& options) {
  MemoryStore store(options.told);
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        MeetingOptions meeting = test_meeting(rank, size, options.timeout_ms);
        meeting.bytes_per_key = options.bytes_per_key;
        if (options.change) options.change(rank, meeting);
        TestRank own{rank, size, std::make_shared<comm::JobState>(size), nullptr};
        own.wire = make_tls_wire(meeting, options.spin, store, *own.job);
        f(own);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(rank)] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TestMessage& TestMessage::send(const std::vector<std::byte>& bytes, int peer, int tag) {
  bytes_ = bytes;
  peer_ = peer;
  operation_->send(bytes_.data(), static_cast<int64_t>(bytes_.size()), peer, tag);
  return *this;
}

TestMessage& TestMessage::receive(int64_t num_bytes, int peer, int tag) {
  bytes_.assign(static_cast<size_t>(num_bytes), std::byte{0});
  peer_ = peer;
  operation_->receive(bytes_.data(), num_bytes, peer, tag);
  return *this;
}

comm::Wire::End TestMessage::end(int64_t timeout_ms) {
  const comm::CallHeader call;
  const comm::GroupInfo group{.name = "test", .ranks = {0, 1, 2, 3, 4, 5, 6, 7}};
  comm::WatchedWait watch(call, group, peer_, timeout_ms, job_);
  return operation_->wait(timeout_ms, watch);
}

const std::vector<std::byte>& TestMessage::wait() {
  const comm::Wire::End how = end();
  if (how != comm::Wire::End::kDone) {
    throw IoError("a message with rank {} ends as {}: {}", peer_, static_cast<int>(how), operation_->reason());
  }
  return bytes_;
}

std::vector<std::byte> test_bytes(int64_t count, uint32_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  uint64_t word = seed * uint64_t{0x9E3779B97F4A7C15} + 1;
  for (std::byte& byte : bytes) {
    word = word * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<std::byte>(word >> 56);
  }
  return bytes;
}

namespace {

sockaddr_in socket_address(const std::string& text) {
  const rendezvous::HostPort place = rendezvous::parse_host_port(text, "the test's address");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(place.port);
  inet_pton(AF_INET, place.host.c_str(), &address.sin_addr);
  return address;
}

}  // namespace

int connect_to(const std::string& address) {
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in where = socket_address(address);
  if (connect(made, reinterpret_cast<const sockaddr*>(&where), sizeof(where)) != 0) {
    close(made);
    throw IoError("cannot connect to {}: {}", address, std::strerror(errno));
  }
  return made;
}

Relay::Relay(std::string target)
    : target_(std::move(target)), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in own = socket_address("127.0.0.1:0");
  socklen_t length = sizeof(own);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0 || listen(listener_, 8) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    throw IoError("the relay cannot listen: {}", std::strerror(errno));
  }
  address_ = "127.0.0.1:" + std::to_string(ntohs(own.sin_port));
  server_ = std::thread([this] { serve(); });
}

Relay::~Relay() {
  cut();
  shutdown(listener_, SHUT_RDWR);
  server_.join();
  for (std::thread& passer : passers_) passer.join();
  for (const int one : sockets_) close(one);
  close(listener_);
}

std::string Relay::heard() const {
  const std::lock_guard lock(mutex_);
  return heard_;
}

void Relay::flip(bool to_target, int64_t position) {
  (to_target ? flip_to_target_ : flip_from_target_).store(position);
}

void Relay::cut() {
  const std::lock_guard lock(mutex_);
  is_cut_ = true;
  for (const int one : sockets_) shutdown(one, SHUT_RDWR);
}

void Relay::serve() {
  for (int caller; (caller = accept(listener_, nullptr, nullptr)) >= 0;) {
    const int callee = connect_to(target_);
    const std::lock_guard lock(mutex_);
    sockets_.push_back(caller);
    sockets_.push_back(callee);
    if (is_cut_) continue;
    passers_.emplace_back([this, caller, callee] { pass(caller, callee, true); });
    passers_.emplace_back([this, caller, callee] { pass(callee, caller, false); });
  }
}

void Relay::pass(int from, int to, bool to_target) {
  std::vector<char> buffer(1 << 16);
  int64_t passed = 0;
  for (ssize_t count; (count = recv(from, buffer.data(), buffer.size(), 0)) > 0; passed += count) {
    const int64_t flipped = (to_target ? flip_to_target_ : flip_from_target_).load();
    if (flipped >= passed && flipped < passed + count) buffer[static_cast<size_t>(flipped - passed)] ^= 1;
    {
      const std::lock_guard lock(mutex_);
      heard_.append(buffer.data(), static_cast<size_t>(count));
    }
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t put = ::send(to, buffer.data() + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
      if (put <= 0) return;
      sent += put;
    }
  }
  shutdown(to, SHUT_WR);
}

}  // namespace tessera::cluster
