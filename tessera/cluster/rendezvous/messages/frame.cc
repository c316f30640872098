#include "tessera/cluster/rendezvous/messages/frame.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::cluster::rendezvous {
namespace {

constexpr char kMagic[2] = {'T', 'R'};
constexpr size_t kSmall = 64;
// A text and the numbers beside it.
constexpr size_t kWithReason = kMaxReason + 256;
constexpr size_t kWithDoing = kSmall + 3 * kMaxDoing;
// A node id with its length.
constexpr size_t kNodeId = sizeof(uint32_t) + kMaxNodeId;

constexpr std::array<FrameRules, 24> kRules = {{
    {FrameType::kRegister, "register", Sender::kPeer, 512 + (kMaxNodesOfLauncher * kNodeId)},
    {FrameType::kHeartbeat, "heartbeat", Sender::kPeer, kWithDoing + (kMaxNodesOfLauncher * sizeof(uint32_t))},
    {FrameType::kSetValue, "set value", Sender::kPeer, kSmall + kMaxValueName + kMaxValueBytes},
    {FrameType::kGetValue, "get value", Sender::kPeer, kSmall + kMaxValueName},
    {FrameType::kSetBlob, "set blob", Sender::kPeer, kSmall + kMaxValueName + kMaxBlobBytes},
    {FrameType::kGetBlob, "get blob", Sender::kPeer, kSmall + kMaxValueName},
    {FrameType::kLeave, "leave", Sender::kPeer, kWithReason},
    {FrameType::kAskStatus, "ask status", Sender::kPeer, 0},
    {FrameType::kForgetValue, "forget value", Sender::kPeer, kSmall + kMaxValueName},
    {FrameType::kResize, "resize", Sender::kPeer, kSmall},
    {FrameType::kFixRanks, "fix ranks", Sender::kPeer, kMaxReason + kWithReason},
    {FrameType::kTellFigures, "tell figures", Sender::kPeer, kSmall + kMaxFigures},
    {FrameType::kTellLastSave, "tell last save", Sender::kPeer, kWithReason},
    {FrameType::kWelcome, "welcome", Sender::kScheduler, kSmall},
    {FrameType::kAssigned, "assigned", Sender::kScheduler,
     kWithReason + (kMaxNodesOfLauncher * (kNodeId + sizeof(uint32_t)))},
    {FrameType::kHeartbeatAnswer, "heartbeat answer", Sender::kScheduler, kWithReason},
    {FrameType::kValue, "value", Sender::kScheduler, kSmall + kMaxValueName + kMaxValueBytes},
    {FrameType::kBlob, "blob", Sender::kScheduler, kSmall + kMaxValueName + kMaxBlobBytes},
    {FrameType::kGenerationEnded, "generation ended", Sender::kScheduler, kWithReason},
    {FrameType::kFenced, "fenced", Sender::kScheduler, kWithReason},
    {FrameType::kRefused, "refused", Sender::kScheduler, kWithReason},
    {FrameType::kJobEnded, "job ended", Sender::kScheduler, kWithReason},
    {FrameType::kStatus, "status", Sender::kScheduler, 4096 + kMaxNodes*(kMaxNodeId + kMaxHostName + 64 + kWithDoing)},
    {FrameType::kNodeDropped, "node dropped", Sender::kScheduler, kWithReason},
}};

template <typename Number>
Number read_little(std::string_view bytes) {
  Number number = 0;
  for (size_t i = 0; i < sizeof(Number); ++i) {
    number |= static_cast<Number>(static_cast<Number>(static_cast<unsigned char>(bytes[i])) << (8 * i));
  }
  return number;
}

}  // namespace

bool is_visible(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
}

const std::array<FrameRules, 24>& all_rules() { return kRules; }

const FrameRules* find_rules(uint8_t type) {
  const auto found = std::ranges::find(kRules, static_cast<FrameType>(type), &FrameRules::type);
  return found == kRules.end() ? nullptr : &*found;
}

void FrameDecoder::add(std::string_view bytes) {
  if (error_) return;
  if (begin_ > 0) bytes_.erase(0, begin_);
  begin_ = 0;
  bytes_ += bytes;
}

std::optional<RawFrame> FrameDecoder::next() {
  if (error_) return std::nullopt;
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  const auto fail = [this](std::string what) {
    error_ = FrameError{std::move(what)};
    bytes_ = std::string();
    begin_ = 0;
    return std::nullopt;
  };
  // What is wrong is said by its first byte: nothing behind it is waited for.
  for (size_t i = 0; i < std::min(rest.size(), sizeof(kMagic)); ++i) {
    if (rest[i] != kMagic[i]) return fail("what arrives is no frame of the rendezvous");
  }
  if (rest.size() > 2 && static_cast<uint8_t>(rest[2]) != kProtocolVersion) {
    return fail(fmt::format("a frame of version {}, where version {} is spoken", static_cast<uint8_t>(rest[2]),
                            kProtocolVersion));
  }
  if (rest.size() > 3) {
    const FrameRules* rules = find_rules(static_cast<uint8_t>(rest[3]));
    if (rules == nullptr) return fail(fmt::format("a frame of unknown type {}", static_cast<uint8_t>(rest[3])));
    if (rules->sender != from_) return fail(fmt::format("a frame \"{}\" in the wrong direction", rules->name));
  }
  if (rest.size() < kHeaderBytes) return std::nullopt;
  const FrameRules& rules = *find_rules(static_cast<uint8_t>(rest[3]));
  const auto length = size_t{read_little<uint32_t>(rest.substr(4))};
  if (length > rules.max_body_bytes) {
    return fail(fmt::format("a frame \"{}\" announces {} bytes, at most {} may come", rules.name, length,
                            rules.max_body_bytes));
  }
  if (rest.size() < kHeaderBytes + length) return std::nullopt;
  RawFrame frame{rules.type, read_little<uint64_t>(rest.substr(8)), std::string(rest.substr(kHeaderBytes, length))};
  begin_ += kHeaderBytes + length;
  return frame;
}

std::string print_frame(FrameType type, uint64_t generation, std::string_view body) {
  const FrameRules* rules = find_rules(static_cast<uint8_t>(type));
  check(rules != nullptr && body.size() <= rules->max_body_bytes, "a frame that is sent keeps to its type's limit");
  std::string bytes(kMagic, sizeof(kMagic));
  bytes.reserve(kHeaderBytes + body.size());
  bytes.push_back(static_cast<char>(kProtocolVersion));
  bytes.push_back(static_cast<char>(type));
  for (size_t i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(body.size() >> (8 * i) & 0xFFU));
  for (size_t i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(generation >> (8 * i) & 0xFFU));
  bytes += body;
  return bytes;
}

}  // namespace tessera::cluster::rendezvous
