// How messages speak of ranks: several in one word, their errors once, and what a silent one is doing.
#pragma once

#include <sys/types.h>

#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cluster {

// "rank 2", "ranks 0, 2-5", or, where it is all of several, "all 4 ranks". `ranks` are in order.
std::string name_ranks(const std::vector<int>& ranks, int size);
// "2", "0,2-5".
std::string number_ranks(const std::vector<int>& ranks, std::string_view separator = ",");

// What the others hear of a rank that has ended with another exit code than 0.
std::string words_of_exit(int code);
// What they hear of one whose process SIGTERM has ended while the job goes on, and whether that is what they hear.
inline constexpr const char* kToldToEndWords = "it was told to end, by SIGTERM";
bool says_told_to_end(std::string_view message);

// Whether the error tells of another rank that has failed or says nothing: this one has done nothing wrong.
bool is_of_other_rank(const std::exception& error);

// The rank with whose failure this error of `rank` began: another one where that says so (comm::PeerFailure).
int origin_of(const std::exception_ptr& error, int rank);

// Errors of ranks, each text once with the ranks that it is of, in the order in which they came.
class RankErrors {
 public:
  explicit RankErrors(int size) : size_(size) {}

  // `text` is what the rank says, without its name. Several lines are kept as they are.
  void add(int rank, std::string_view text);
  struct Entry {
    std::string text;
    std::vector<int> ranks;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  int size() const { return size_; }
  // The entry that has this rank's error, or null.
  const Entry* of_rank(int rank) const;

 private:
  int size_;
  std::vector<Entry> entries_;
};

// What a thread of a process of this user is doing: "it computes", "it waits in the system call futex", "it has been
// stopped", "" where nobody says.
std::string describe_thread(pid_t process, pid_t thread);

}  // namespace tessera::cluster
