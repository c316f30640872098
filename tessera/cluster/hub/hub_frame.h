// The hub's wire, within TLS 1.3: frames of a kind and a body. Each is u32 little-endian length of what follows, one
// byte of kind, the body. A body of several fields separates them by a zero byte.
//
// When both sides have shown by the handshake of TLS that they know the job's secret, in order: welcome (hub), join
// (rank), all joined (hub), and the rest.
// Whatever arrives, reading gives frames or throws IoError; nothing is allocated that the limits do not allow.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/tls/tls_session.h"
#include "tessera/comm/wire/secret.h"

namespace tessera::cluster {

inline constexpr std::string_view kHubProtocol = "tessera hub 7";

enum class FrameKind : char {
  kWelcome = 'W',    // hub: protocol
  kJoin = 'J',       // rank: JoinBody
  kSet = 'S',        // rank: NamedValue
  kGet = 'G',        // rank: name
  kForget = 'X',     // rank: name of a value that it has set
  kFail = 'F',       // RankText: the rank with whose failure it began, and what is said of it
  kEnd = 'E',        // rank: nothing; hub: rank
  kRefused = 'R',    // hub: reason
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

// By what a hub, or a rank that comes to it, shows who it is. Without a secret, at a local socket, it shows nothing:
// there the system says which user is on the other side.
std::shared_ptr<const TlsContext> make_hub_context(const comm::Secret& secret, TlsSide side);

// The most bytes that may follow the length.
inline constexpr size_t kMaxFrame = size_t{4} << 20;
inline constexpr size_t kMaxName = 256;
inline constexpr size_t kMaxValue = size_t{1} << 20;
inline constexpr size_t kMaxText = 4096;  // a host's name, a job id

// Collects what arrives into frames.
class FrameReader {
 public:
  void add(std::string_view bytes);
  // Takes the next whole frame; false while there is none. Throws IoError when what arrived is no frame or is too long;
  // nothing that came after is read then.
  bool next(Frame& frame);
  // How many bytes wait for the rest of their frame.
  size_t waiting_bytes() const { return bytes_.size() - begin_; }

 private:
  std::string bytes_;
  size_t begin_ = 0;
};

// A FrameWriter holds frames on their way out, in plain words until the socket takes them: a body for many ranks is
// there once.
class FrameWriter {
 public:
  void push(FrameKind kind, std::string body);
  // One body for many writers.
  void push(FrameKind kind, std::shared_ptr<const std::string> body);
  // Encrypts and sends as much as the socket takes now, and what TLS itself has to say. False when the connection is
  // gone: what waited is dropped.
  bool flush(TlsSession& session, const Socket& socket);
  size_t waiting_bytes() const { return plain_bytes_ + output_.size() - sent_; }

 private:
  std::string take_piece();
  void drop();

  std::deque<std::shared_ptr<const std::string>> parts_;
  size_t begun_ = 0;  // how much of the first part is taken
  size_t plain_bytes_ = 0;
  std::string output_;
  size_t sent_ = 0;  // how much of the output
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

}  // namespace tessera::cluster
