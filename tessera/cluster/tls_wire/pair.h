// Pair: what this rank and another one send each other over one TlsStream: messages, matched by tag in the order in
// which they are started. Bytes move when somebody calls; nothing here waits. Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/cluster/tls_wire/pair_frame.h"
#include "tessera/cluster/tls_wire/tls_stream.h"

namespace tessera::cluster {

// A message on its way from or to memory that stays untouched until it is done.
struct Transfer {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  uint32_t tag = 0;
  bool is_send = false;
  std::atomic<bool> is_done{false};

  // The pair's.
  int64_t moved = 0;
  bool is_listed = false;
  bool is_granted = false;    // a send of which some bytes may go; a receive whose kReady is said or is to be said
  bool is_requested = false;  // a send that has asked for kReady
  bool must_say_ready = false;
};

class Pair {
 public:
  enum class State : uint8_t {
    kOpen,
    kLeft,  // the other rank has ended the connection, as one does at the end of its job
    kLost,  // reason() says how
  };
  // What a call has done, for those who wait.
  struct Moved {
    int num_done = 0;       // transfers; start() does not count its own
    bool is_open = true;    // else the pair has come to its end
    bool has_more = false;  // it stopped because others wait for their turn
  };

  // `peer`: its world rank.
  Pair(int peer, std::unique_ptr<TlsStream> stream);
  ~Pair();

  int peer() const { return peer_; }
  int socket() const { return stream_->socket(); }

  // Begins `transfer`, whose data, bytes, tag and is_send are set, and sends what can go at once. It stays where it is
  // until it is done or given up.
  Moved start(Transfer& transfer);
  // Moves what can be moved now. Must be called again when the socket has bytes or room, or when it says has_more.
  Moved move();
  // Forgets a transfer that is not done. Where it has begun to move, the pair is lost.
  void forget(Transfer& transfer);
  // Touches no memory of transfers from now on.
  void give_up(const std::string& reason);
  // Says that nothing more comes, as at the end of a job.
  void leave();
  // Whether the other host has got all that was said; what still arrives is dropped. Only after leave().
  bool is_delivered();

  State state() const { return state_.load(std::memory_order_acquire); }
  std::string reason() const;

 private:
  // A small message that nobody has asked for yet, or the request of one.
  struct Arrival {
    uint32_t tag = 0;
    bool is_request = false;
    int64_t bytes = 0;
    std::vector<std::byte> data;
  };

  Moved moved_since(int64_t num_done_before) const {
    return {static_cast<int>(num_done_ - num_done_before), state() == State::kOpen, false};
  }
  void match(Transfer& receive);
  bool has_message(const Transfer& receive) const;
  int64_t write_some();
  int64_t read_some();
  void stage();
  void stage_control();
  Transfer* choose_send();
  bool has_older(const std::vector<Transfer*>& list, size_t index) const;
  void take_header(const FrameHeader& header);
  void take_message(const FrameHeader& header);
  void take_chunk(const FrameHeader& header);
  void end_frame();
  Transfer* find_receive(uint32_t tag, bool is_granted) const;
  std::unique_ptr<Arrival> new_arrival(const FrameHeader& header);
  void drop(std::unique_ptr<Arrival> arrival);
  void finish(Transfer& transfer);
  void end(State state, const std::string& reason);
  bool stage_frame(const FrameHeader& header);
  void fail(const std::string& what) { end(State::kLost, "it says what no rank says: " + what); }

  const int peer_;
  mutable std::mutex mutex_;
  std::unique_ptr<TlsStream> stream_;
  std::atomic<State> state_{State::kOpen};
  std::string reason_;
  int64_t num_done_ = 0;

  std::vector<Transfer*> sends_;     // that have bytes to stage or to write
  std::vector<Transfer*> receives_;  // that lack bytes
  std::vector<std::unique_ptr<Arrival>> arrivals_;
  std::vector<std::unique_ptr<Arrival>> spare_;    // whose memory serves later ones
  std::unordered_map<uint32_t, int64_t> permits_;  // by tag: what was heard of kReady and not used

  // Out: a buffer of one record begins with frames and the first bytes of a message; the rest follows from its memory.
  std::vector<std::byte> staged_;
  size_t staged_begin_ = 0;
  size_t staged_end_ = 0;
  Transfer* outgoing_ = nullptr;
  int64_t outgoing_end_ = 0;  // of the bytes of `outgoing_` that this frame has
  size_t next_send_ = 0;      // whose turn it is
  int64_t credit_ = kCreditBytes;
  bool can_write_ = true;

  // In.
  std::byte header_[kFrameHeaderBytes] = {};
  size_t header_bytes_ = 0;
  FrameHeader frame_;
  std::byte* into_ = nullptr;
  int64_t into_bytes_ = 0;  // that the frame still has
  bool is_in_frame_ = false;
  Transfer* incoming_ = nullptr;
  std::unique_ptr<Arrival> arriving_;
  int64_t held_bytes_ = 0;  // of the credit that the other rank has used
  int64_t owed_bytes_ = 0;  // of them that it is to be given back
};

}  // namespace tessera::cluster
