// The hub's wire: frames of a kind and a body. Each is u32 little-endian length of what follows, one byte of kind, the
// body, and, once both sides have proven the job's secret, a seal: 32 bytes of HMAC-SHA-256 over the frame's number in
// its direction, kind and body, by a key of that connection and direction. A body of several fields separates them by a
// zero byte.
//
// In order: challenge (hub), proof (rank), proof (hub); then, sealed, join (rank), all joined (hub), and the rest.
// Whatever arrives, reading gives frames or throws IoError; nothing is allocated that the limits do not allow.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/comm/wire/secret.h"

namespace tessera::cluster {

enum class FrameKind : char {
  kChallenge = 'C',  // hub: protocol, its nonce
  kProof = 'P',      // rank: its nonce, hash; hub: hash
  kJoin = 'J',       // rank: JoinBody
  kSet = 'S',        // rank: NamedValue
  kGet = 'G',        // rank: name
  kForget = 'X',     // rank: name of a value that it has set
  kFail = 'F',       // RankText: the rank with whose failure it began, and what is said of it
  kEnd = 'E',        // rank: nothing; hub: rank
  kRefused = 'R',    // hub: reason; unsealed it has none
  kAllJoined = 'A',  // hub: hosts by rank
  kValue = 'V',      // hub: NamedValue
  kAllEnded = 'Z',   // hub: nothing
  kAsk = 'Q',        // what a rank does, for one that waits for it: rank: RankText, whom, and where it waits; hub: who
  kAnswer = 'D',     // rank: RankText, to whom, and what it does; hub: whose answer
};

struct Frame {
  FrameKind kind = FrameKind::kEnd;
  std::string body;
};

// The most bytes that may follow the length.
inline constexpr size_t kMaxUnsealedFrame = 256;
inline constexpr size_t kMaxFrame = size_t{4} << 20;
inline constexpr size_t kMaxName = 256;
inline constexpr size_t kMaxValue = size_t{1} << 20;
inline constexpr size_t kMaxText = 4096;  // a host's name, a job id

// Collects what arrives into frames.
class FrameReader {
 public:
  void add(std::string_view bytes);
  // Takes the next whole frame; false while there is none. Throws IoError when what arrived is no frame, is too long,
  // or bears a wrong seal; nothing that came after is read then.
  bool next(Frame& frame);
  // Frames that have not been taken yet are sealed by `key`.
  void seal(const comm::Secret& key);
  // How many bytes wait for the rest of their frame.
  size_t waiting_bytes() const { return bytes_.size() - begin_; }

 private:
  std::string bytes_;
  size_t begin_ = 0;
  comm::Secret key_;
  bool is_sealed_ = false;
  uint64_t number_ = 0;
};

// A FrameWriter holds frames on their way out.
class FrameWriter {
 public:
  void push(FrameKind kind, std::string body);
  // One body for many writers.
  void push(FrameKind kind, std::shared_ptr<const std::string> body);
  // Sends as much as the socket takes now. False when the connection is gone.
  bool flush(const Socket& socket);
  // Frames that are pushed from now on are sealed by `key`.
  void seal(const comm::Secret& key);
  size_t waiting_bytes() const { return waiting_bytes_; }

 private:
  std::deque<std::shared_ptr<const std::string>> parts_;
  size_t sent_ = 0;  // how much of the first frame is sent
  size_t waiting_bytes_ = 0;
  comm::Secret key_;
  bool is_sealed_ = false;
  uint64_t number_ = 0;
};

// Bodies. The parsers throw IoError naming what is wrong, without repeating it.

std::string join_fields(const std::vector<std::string>& fields);
std::vector<std::string> split_fields(std::string_view body);

struct JoinBody {
  std::string job_id;
  int rank = 0;
  int size = 0;
  std::string host;
};
std::string print_join(const JoinBody& join);
JoinBody parse_join(std::string_view body);

struct NamedValue {
  std::string name;
  std::string value;
};
NamedValue parse_named_value(std::string_view body);
std::string parse_name(std::string_view body);

struct RankText {
  int rank = 0;
  std::string text;
};
// `size`: of the job; the rank is from 0 to size - 1.
RankText parse_rank_text(std::string_view body, int size);
int parse_rank(std::string_view body, int size);

// What both sides do to prove the secret to each other. The rank proves first, so that the hub shows a stranger nothing
// made of the secret; it says nothing of itself before the hub has proven it too.
struct SessionKeys {
  comm::Secret to_hub;
  comm::Secret to_rank;
};

class HubHandshake {
 public:
  explicit HubHandshake(const comm::Secret& secret);
  // The challenge's body.
  std::string challenge() const;
  // Whether the rank's proof holds; then `answer` and `keys` are set.
  bool check_proof(std::string_view body, std::string& answer, SessionKeys& keys) const;

 private:
  comm::Secret secret_;
  std::string nonce_;
};

class RankHandshake {
 public:
  explicit RankHandshake(const comm::Secret& secret);
  // The rank's proof. Throws IoError when `challenge` is none of this protocol.
  std::string prove(std::string_view challenge);
  // Whether the hub's answer to that proof holds; then `keys` is set.
  bool check_answer(std::string_view body, SessionKeys& keys) const;

 private:
  comm::Secret secret_;
  std::string own_nonce_;
  std::string hub_nonce_;
};

}  // namespace tessera::cluster
