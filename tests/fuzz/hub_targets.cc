// What arrives at the hub and at its ranks.
#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/cluster/hub/hub_frame.h"
#include "tests/fuzz/mutators.h"
#include "tests/fuzz/round_trip.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

using cluster::FrameKind;

constexpr int kSize = 4;
constexpr size_t kHeadBytes = 5;

std::string print_frame(char kind, const std::string& body, size_t length) {
  std::string bytes;
  for (size_t i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(length >> (8 * i) & 0xFFU));
  return bytes + kind + body;
}

std::string print_frame(FrameKind kind, const std::string& body) {
  return print_frame(static_cast<char>(kind), body, body.size() + 1);
}

// The body as it is printed again, once it was understood.
std::string parse_body(const cluster::Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kJoin: return cluster::print_join(cluster::parse_join(frame.body));
    case FrameKind::kSet:
    case FrameKind::kValue: {
      const auto value = cluster::parse_named_value(frame.body);
      return cluster::join_fields({value.name, value.value});
    }
    case FrameKind::kGet:
    case FrameKind::kForget: return cluster::parse_name(frame.body);
    case FrameKind::kAsk:
    case FrameKind::kAnswer:
    case FrameKind::kFail: {
      const auto said = cluster::parse_rank_text(frame.body, kSize);
      return cluster::join_fields({std::to_string(said.rank), said.text});
    }
    case FrameKind::kEnd: return std::to_string(cluster::parse_rank(frame.body, kSize));
    case FrameKind::kAllJoined: return cluster::join_fields(cluster::split_fields(frame.body));
    case FrameKind::kRefused: return printable(frame.body);
    default: return frame.body;
  }
}

std::string parse_frames(const std::string& bytes, size_t piece) {
  std::string printed;
  cluster::FrameReader reader;
  cluster::Frame frame;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.add(std::string_view(bytes).substr(at, piece));
    while (reader.next(frame)) {
      const std::string body = parse_body(frame);
      // What is escaped grows, at last beyond what a frame may hold.
      if (body.size() < cluster::kMaxFrame) printed += print_frame(frame.kind, body);
    }
    if (reader.waiting_bytes() > piece + cluster::kMaxFrame + 4) throw Broken("more waits than one frame");
  }
  return printed;
}

bool frames_parse(const std::string& bytes) {
  const auto parse = [](const std::string& text) { return parse_frames(text, 4096); };
  const auto whole = parse_or_refuse(parse, bytes);
  const auto pieces = parse_or_refuse([](const std::string& text) { return parse_frames(text, 3); }, bytes);
  if (whole != pieces) throw Broken("what arrives in pieces reads differently");
  return whole.has_value() && comes_back(
                                  *whole, parse, [](const std::string& text) { return text; }, std::equal_to<>());
}

// Damages bodies, kinds, order and, one in eight, lengths.
std::string mutate_frames(const std::string& bytes, Draws& draws) {
  std::vector<std::pair<char, std::string>> frames;
  for (size_t at = 0; at + kHeadBytes <= bytes.size();) {
    const size_t length = static_cast<unsigned char>(bytes[at]);
    frames.emplace_back(bytes[at + 4], bytes.substr(at + kHeadBytes, length - 1));
    at += 4 + length;
  }
  std::string made;
  for (size_t left = 1 + draws.below(frames.size()); left > 0; --left) {
    auto [kind, body] = draws.pick(frames);
    if (draws.one_in(8)) kind = static_cast<char>(draws.below(256));
    if (draws.one_in(2)) body = mutate_bytes(body, draws);
    const size_t length = draws.one_in(8) ? static_cast<size_t>(draws.pick(telling_numbers())) : body.size() + 1;
    made += print_frame(kind, body, length);
  }
  return draws.one_in(8) ? mutate_bytes(made, draws) : made;
}

}  // namespace

std::vector<Target> hub_targets() {
  const std::string example =
      print_frame(FrameKind::kWelcome, std::string(cluster::kHubProtocol)) +
      print_frame(FrameKind::kJoin, cluster::print_join({"job", 1, kSize, "host 0|0,1,"})) +
      print_frame(FrameKind::kAllJoined, cluster::join_fields({"a", "b", "c", "d"})) +
      print_frame(FrameKind::kSet, cluster::join_fields({"segment/1/1", "/proc/17/fd/5"})) +
      print_frame(FrameKind::kGet, "segment/1/1") + print_frame(FrameKind::kForget, "segment/1/1") +
      print_frame(FrameKind::kValue, cluster::join_fields({"segment/1/1", "/proc/17/fd/5"})) +
      print_frame(FrameKind::kFail, cluster::join_fields({"3", "the shape is wrong"})) +
      print_frame(FrameKind::kEnd, "2") + print_frame(FrameKind::kRefused, "rank 1 has joined already") +
      print_frame(FrameKind::kAllEnded, "");
  return {{"hub", {example}, mutate_frames, frames_parse}};
}

}  // namespace tessera::fuzz
