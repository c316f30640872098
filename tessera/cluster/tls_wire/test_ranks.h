// Ranks of a TLS wire as threads, who meet at a store in memory; and who stands between them or comes in their place.
// For tests.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/cluster/tls_wire/tls_wire.h"

namespace tessera::cluster {

class MemoryStore final : public comm::Store {
 public:
  // `told`: what is heard of a value, if another one than was set.
  explicit MemoryStore(std::function<std::string(const std::string& name, std::string value)> told = {})
      : told_(std::move(told)) {}
  void set(const std::string& name, const std::string& value) override;
  std::string get(const std::string& name, int64_t timeout_ms) override;
  std::optional<std::string> find(const std::string& name, int64_t limit_ms) override;
  void forget(const std::string& /*name*/) override {}

 private:
  std::function<std::string(const std::string&, std::string)> told_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

struct TestRank {
  int rank;
  int size;
  std::shared_ptr<comm::JobState> job;  // this rank's own, as in a process; it outlives the wire
  std::shared_ptr<comm::Wire> wire;
};

struct TestJobOptions {
  int64_t timeout_ms = 20000;
  int64_t bytes_per_key = kBytesPerKey;
  bool spin = false;
  // What is special of one rank.
  std::function<void(int rank, MeetingOptions& meeting)> change = {};
  // What is heard of a value of the store, if another one than was set.
  std::function<std::string(const std::string& name, std::string value)> told = {};
};

// The job's secret.
comm::Secret test_secret(char letter = 's');

// What a rank of a job of 127.0.0.1 is told.
MeetingOptions test_meeting(int rank, int size, int64_t timeout_ms);

// Meets on `size` threads, calls f(rank) there, and returns what each of them has thrown, "" where nothing.
std::vector<std::string> run_test_ranks(int size, const std::function<void(TestRank&)>& f,
                                        const TestJobOptions& options = {});

// TestMessage: one at a time by a wire; it waits as calls do.
class TestMessage {
 public:
  explicit TestMessage(TestRank& rank) : job_(*rank.job), operation_(rank.wire->make_operation()) {}
  TestMessage& send(const std::vector<std::byte>& bytes, int peer, int tag);
  // Into memory of its own.
  TestMessage& receive(int64_t num_bytes, int peer, int tag);
  comm::Wire::End end(int64_t timeout_ms = 20000);
  // Throws IoError unless it is done; returns what has come.
  const std::vector<std::byte>& wait();
  std::string reason() const { return operation_->reason(); }

 private:
  comm::JobState& job_;
  int peer_ = 0;
  std::vector<std::byte> bytes_;
  std::unique_ptr<comm::Wire::Operation> operation_;
};

// Bytes that are a function of `seed`.
std::vector<std::byte> test_bytes(int64_t count, uint32_t seed);

// Relay stands between two ends of TCP: it hears all that they say, and may change or cut it.
class Relay {
 public:
  explicit Relay(std::string target);
  ~Relay();
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const std::string& address() const { return address_; }
  // All bytes in both directions.
  std::string heard() const;
  // Flips the lowest bit of the n-th byte of those that go to the target, or come from it.
  void flip(bool to_target, int64_t position);
  void cut();

 private:
  void serve();
  void pass(int from, int to, bool to_target);

  std::string target_;
  std::string address_;
  int listener_;
  mutable std::mutex mutex_;
  std::string heard_;
  std::atomic<int64_t> flip_to_target_{-1};
  std::atomic<int64_t> flip_from_target_{-1};
  std::vector<int> sockets_;
  bool is_cut_ = false;
  std::vector<std::thread> passers_;
  std::thread server_;
};

// A connection to "HOST:PORT"; throws IoError.
int connect_to(const std::string& address);

}  // namespace tessera::cluster
