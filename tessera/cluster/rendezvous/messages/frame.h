// The wire between a scheduler and those who speak to it. A frame is a header of 16 bytes and a body:
//   byte 0  'T', 1  'R'; byte 2  version; byte 3  type; bytes 4-7  bytes of the body; bytes 8-15  generation
// Numbers are little-endian. A generation is the number of the membership that the sender knows, 0 before the first.
//
// Everything here is a function of bytes: it reads no clock and no socket, throws nothing on input, and allocates only
// what has arrived and what the table of types allows. TLS, below it, says who sends.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::cluster::rendezvous {

inline constexpr size_t kHeaderBytes = 16;
inline constexpr uint8_t kProtocolVersion = 14;

enum class FrameType : uint8_t {
  // of ranks, launchers and those who look on
  kRegister = 1,
  kHeartbeat = 2,
  kSetValue = 3,
  kGetValue = 4,
  kSetBlob = 5,
  kGetBlob = 6,
  kLeave = 7,
  kAskStatus = 8,
  kForgetValue = 9,
  kResize = 10,
  kFixRanks = 11,
  kTellFigures = 12,
  kTellLastSave = 13,
  // of the scheduler
  kWelcome = 33,
  kAssigned = 34,
  kHeartbeatAnswer = 35,
  kValue = 36,
  kBlob = 37,
  kGenerationEnded = 38,
  kFenced = 39,
  kRefused = 40,
  kJobEnded = 41,
  kStatus = 42,
  kNodeDropped = 43,
};

// Who sends a frame.
enum class Sender : uint8_t { kPeer, kScheduler };

// What may come as a frame of a type.
struct FrameRules {
  FrameType type;
  std::string_view name;
  Sender sender;
  size_t max_body_bytes;
};

// Whether a text has characters, and only such of ASCII as can be seen: no space either. A node id is so.
bool is_visible(std::string_view text);

// The most bytes of a text, a value and a blob.
inline constexpr size_t kMaxNodeId = 100;
inline constexpr size_t kMaxHostName = 256;
inline constexpr size_t kMaxValueName = 256;
inline constexpr size_t kMaxValueBytes = size_t{1} << 20;
inline constexpr size_t kMaxBlobBytes = size_t{8} << 20;
inline constexpr size_t kMaxReason = 4096;
inline constexpr size_t kMaxDoing = 120;
inline constexpr size_t kMaxFigures = 3072;
inline constexpr size_t kMaxNodesOfLauncher = 4096;
inline constexpr size_t kMaxNodes = 16384;

// The rules of a type; nullptr for a byte that is none.
const FrameRules* find_rules(uint8_t type);
// All types, in the order of their bytes.
const std::array<FrameRules, 24>& all_rules();

// A frame whose body nobody has read yet.
struct RawFrame {
  FrameType type = FrameType::kHeartbeat;
  uint64_t generation = 0;
  std::string body;
};

// What cannot be read, in words that repeat nothing of it.
struct FrameError {
  std::string what;
};

// Collects what arrives into frames of one sender. After an error it gives nothing more.
class FrameDecoder {
 public:
  explicit FrameDecoder(Sender from) : from_(from) {}

  void add(std::string_view bytes);
  // Takes the next whole frame; nullopt while there is none, and for ever after an error.
  std::optional<RawFrame> next();
  const std::optional<FrameError>& error() const { return error_; }
  // Bytes that wait for the rest of their frame.
  size_t waiting_bytes() const { return bytes_.size() - begin_; }

 private:
  Sender from_;
  std::string bytes_;
  size_t begin_ = 0;
  std::optional<FrameError> error_;
};

// Prints a frame. The body must have no more bytes than its type may have.
std::string print_frame(FrameType type, uint64_t generation, std::string_view body);

}  // namespace tessera::cluster::rendezvous
