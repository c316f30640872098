// Strangers: the connections that have not shown yet who they are, so many at a time, in all and from one address. One
// that comes when its address has its share takes the place of another one of that address; when all places are taken,
// new ones wait in the system's queue until somebody has had its time of grace. So a flood from one address keeps out
// nobody of another one, and one that answers at once is through before its turn to go. Pure; the time is passed in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace tessera::cluster {

struct StrangerLimits {
  size_t most = 0;             // 0: 256, or a fourth of the descriptors that the process may have
  size_t most_of_address = 0;  // 0: half of them
  int64_t grace_ms = 250;
  int64_t deadline_ms = 5000;  // of a handshake
};

class Strangers {
 public:
  explicit Strangers(const StrangerLimits& limits = {});

  // Whether one more may come: there is a place, or somebody who has had its time of grace.
  bool has_room(int64_t now_ms) const;
  // One more has come. Returns whose place it takes, if it does.
  std::optional<uint64_t> add(uint64_t id, const std::string& address, int64_t now_ms);
  // It has shown who it is, or is gone. False where it was none.
  bool remove(uint64_t id);
  // Those whose handshake takes too long.
  std::vector<uint64_t> overdue(int64_t now_ms) const;
  size_t size() const { return since_.size(); }

 private:
  struct Entry {
    std::string address;
    int64_t since_ms = 0;
  };
  std::optional<uint64_t> choose_to_go(const std::string& address);

  StrangerLimits limits_;
  std::map<uint64_t, Entry> since_;  // in the order of their coming
  std::map<std::string, size_t> of_address_;
  std::minstd_rand draws_{std::random_device()()};
};

}  // namespace tessera::cluster
