// WaitTimes: how long a rank has waited for which other rank, and in which calls, which tells slow ranks from the
// others. Thread-safe; adding allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::comm {

// What a rank has waited for another one in the calls of one name.
struct WaitTime {
  std::string call;       // `all_reduce "fc" of group "world"`
  int peer = -1;          // of the world, that was waited for
  int first_waiting = 0;  // the first rank of the call, of the world, that is not the peer
  int64_t waited_ms = 0;
};

class WaitTimes {
 public:
  // The call that is meant, as texts that need live for the call only.
  struct Call {
    std::string_view label;  // `all_reduce "fc"`
    std::string_view group;
    int peer = -1;
    int first_waiting = 0;
  };
  // Calls of more names than there is room for are added to none.
  void add(const Call& call, int64_t waited_ms);
  // What was added since the last time, the longest first.
  std::vector<WaitTime> take();

 private:
  // A label of a CallHeader is cut as its name is.
  struct Entry {
    std::array<char, 80> label{};
    std::array<char, 40> group{};
    int peer = -1;
    int first_waiting = 0;
    int64_t waited_ms = 0;
  };
  static constexpr size_t kMostEntries = 64;

  std::mutex mutex_;
  std::array<Entry, kMostEntries> entries_;
  size_t num_entries_ = 0;
};

}  // namespace tessera::comm
