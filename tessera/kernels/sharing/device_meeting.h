// DeviceMeeting: where the ranks of a group on one device find each other and wait for each other: a page of the host's
// memory that all of them see, as threads of a process or as processes of a host.
//
// Exchanges are numbered alike on all ranks, from 1. A rank posts exchange s when it has read what it wanted of
// exchange s - 1: so whoever has seen all posts of s may write what the others read in s - 1. Messages go from one rank
// to another, and are counted per pair.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::kernels {

// Tells this process from all that may reach the page.
std::string name_of_process();

// What a rank says of a call when it posts an exchange.
struct PostedExchange {
  uint64_t call = 0;        // what the call is, in one number: equal on all ranks
  uint64_t num_rounds = 1;  // exchanges that this rank needs for it
};

// A rank is used by one thread at a time. Waits call `waiting` now and then, which may throw.
class DeviceMeeting {
 public:
  static constexpr int kMostRanks = 64;
  static constexpr size_t kMostHandleBytes = 128;
  using Waiting = std::function<void()>;

  // A new one; its id is for those who are to come. It stays until it is dismissed. Throws IoError where the system
  // gives no memory for it.
  static std::string make();
  // What was made here, or by a process of this host. Throws IoError where it is not reached from here.
  static std::shared_ptr<DeviceMeeting> find(const std::string& id);
  // Whoever is to come has come; of what was made elsewhere, nothing.
  static void dismiss(const std::string& id);

  ~DeviceMeeting();
  DeviceMeeting(const DeviceMeeting&) = delete;
  DeviceMeeting& operator=(const DeviceMeeting&) = delete;

  // The rank has come, with the block of the device that others read. It stays as long as this process is in the
  // meeting. `handle` is for other processes.
  void enter(int rank, std::shared_ptr<std::byte> block, const std::string& handle);
  // Returns when so many ranks have come.
  void await_all(int size, const Waiting& waiting);
  bool is_of_this_process(int rank) const;
  std::shared_ptr<std::byte> block_of(int rank);  // of a rank of this process
  std::string handle_of(int rank) const;          // of another one

  void post(int rank, uint64_t exchange, const PostedExchange& posted);
  PostedExchange await_post(int rank, uint64_t exchange, const Waiting& waiting);
  // The rank has read what it wanted of that exchange.
  void set_done(int rank, uint64_t exchange);
  uint64_t done_of(int rank) const;

  // Returns when `to` has taken all messages so far; when there is one that was not taken.
  void await_taken(int from, int to, const Waiting& waiting);
  void await_sent(int from, int to, const Waiting& waiting);
  void set_sent(int from, int to);
  void set_taken(int from, int to);

  // Ends all waits, once those who wait have had the time to hear of the reason.
  void give_up(int rank);
  int given_up_by() const;  // -1: nobody has

 private:
  struct Page;
  DeviceMeeting(int file, Page* page);
  static std::shared_ptr<DeviceMeeting> open(const std::string& id);
  template <typename Holds>
  void await(const Holds& holds, const Waiting& waiting);

  int file_;
  Page* page_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<std::byte>> blocks_;  // of the ranks of this process
};

}  // namespace tessera::kernels
