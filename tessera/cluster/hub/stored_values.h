// StoredValues: what the members of a job tell each other by name, at its hub or its scheduler, and who waits for what.
// A value belongs to the member that has set it, which may set it anew and take it back; what each member keeps, and
// all of them, is bounded. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace tessera::cluster {

// What one member may keep, and all of them. Gloo's addresses are 136 bytes for each pair of ranks, the paths of shared
// memory 30 for each piece.
struct Quotas {
  size_t stored_bytes_of_peer = size_t{8} << 20;
  size_t stored_bytes = size_t{256} << 20;
  size_t wanted_names_of_peer = 4096;
  size_t entry_bytes = 64;  // each value counts so much beside its bytes
};

class StoredValues {
 public:
  using Value = std::shared_ptr<const std::string>;

  explicit StoredValues(const Quotas& quotas = {}) : quotas_(quotas) {}

  // Stores a value in place of the one that its owner has given the name before. Returns why that cannot be; "" where
  // it is done.
  std::string set(const std::string& owner, const std::string& name, Value value);
  // Nobody will ask for the owner's value any more. A name that has none, or another owner's, is left as it is.
  void forget(const std::string& owner, const std::string& name);
  // Null where nobody has set it.
  Value find(const std::string& name) const;
  // Notes that a member waits for a name. Returns why that cannot be; "" where it is done.
  std::string wait(uint64_t waiter, const std::string& name);
  // Those that wait for a name; they wait no longer.
  std::set<uint64_t> take_waiters(const std::string& name);
  void remove_waiter(uint64_t waiter);
  void clear();

 private:
  struct Entry {
    Value value;
    std::string owner;
  };
  size_t cost_of(const std::string& name, const Value& value) const {
    return name.size() + value->size() + quotas_.entry_bytes;
  }

  Quotas quotas_;
  std::map<std::string, Entry> values_;
  std::map<std::string, size_t> bytes_of_;  // by owner
  size_t bytes_ = 0;
  std::map<std::string, std::set<uint64_t>> waiters_;  // by name
  std::map<uint64_t, size_t> num_wanted_;              // by waiter
};

}  // namespace tessera::cluster
