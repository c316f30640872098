// What arrives at a scheduler, at its peers, and lies in its file.
#include "tessera/cluster/rendezvous/membership/scheduler_state.h"
#include "tessera/cluster/rendezvous/messages/message_examples.h"
#include "tessera/cluster/rendezvous/messages/messages.h"
#include "tests/fuzz/mutators.h"
#include "tests/fuzz/targets.h"

namespace tessera::fuzz {
namespace {

namespace wire = cluster::rendezvous;

// What a decoder makes of bytes that arrive in pieces: the messages printed again, and what stopped it.
std::pair<std::string, std::string> parse_messages(const std::string& bytes, wire::Sender from, size_t piece) {
  wire::FrameDecoder decoder(from);
  std::string printed;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    decoder.add(std::string_view(bytes).substr(at, piece));
    while (const auto frame = decoder.next()) {
      wire::FrameError error;
      const auto message = wire::parse_message(*frame, error);
      if (!message) return {printed, error.what};
      printed += wire::print_message(*message, frame->generation);
    }
    if (decoder.error()) return {printed, decoder.error()->what};
  }
  return {printed, ""};
}

bool messages_parse(const std::string& bytes, wire::Sender from) {
  const auto whole = parse_messages(bytes, from, 4096);
  if (whole != parse_messages(bytes, from, 3)) throw Broken("what arrives in pieces reads differently");
  const auto again = parse_messages(whole.first, from, 4096);
  if (!again.second.empty()) throw Broken("what was parsed and printed does not parse: " + again.second);
  if (again.first != whole.first) throw Broken("what was parsed and printed parses differently");
  return whole.second.empty() && !whole.first.empty();
}

bool state_parses(const std::string& bytes) {
  wire::FrameError error;
  const auto state = wire::parse_scheduler_state(bytes, error);
  if (!state) return false;
  const std::string printed = wire::print_scheduler_state(*state);
  const auto again = wire::parse_scheduler_state(printed, error);
  if (!again) throw Broken("what was parsed and printed does not parse: " + error.what);
  if (wire::print_scheduler_state(*again) != printed) throw Broken("what was parsed and printed parses differently");
  return true;
}

std::vector<std::string> examples_of(wire::Sender from) {
  std::vector<std::string> printed;
  for (const wire::Message& message : wire::message_examples()) {
    const auto* rules = wire::find_rules(static_cast<uint8_t>(wire::type_of(message)));
    if (rules->sender == from) printed.push_back(wire::print_message(message, 3));
  }
  return printed;
}

void set_length(std::string& frame, uint64_t length) {
  for (size_t i = 0; i < 4; ++i) frame[4 + i] = static_cast<char>(length >> (8 * i) & 0xFFU);
}

// Several frames: their bodies damaged, with lengths that are right but for one in eight, which lies; types and
// generations changed now and then.
std::string mutate_messages(const std::vector<std::string>& examples, Draws& draws) {
  std::string made;
  for (size_t left = 1 + draws.below(4); left > 0; --left) {
    std::string frame = draws.pick(examples);
    if (draws.one_in(2)) {
      frame = frame.substr(0, wire::kHeaderBytes) + mutate_bytes(frame.substr(wire::kHeaderBytes), draws);
    }
    set_length(frame, draws.one_in(8) ? draws.pick(telling_numbers()) : frame.size() - wire::kHeaderBytes);
    if (draws.one_in(8)) frame[3] = static_cast<char>(draws.below(256));
    if (draws.one_in(8)) frame[8 + draws.below(8)] = static_cast<char>(draws.below(256));
    made += frame;
  }
  return draws.one_in(8) ? mutate_bytes(made, draws) : made;
}

Target target_of(const std::string& name, wire::Sender from) {
  const std::vector<std::string> examples = examples_of(from);
  return {name, examples, [examples](const std::string&, Draws& draws) { return mutate_messages(examples, draws); },
          [from](const std::string& bytes) { return messages_parse(bytes, from); }};
}

// With its checksum made right, else no damage would come further than that.
std::string mutate_state(const std::string& bytes, Draws& draws) {
  constexpr size_t kHead = 8;
  constexpr size_t kTail = 4;
  std::string body = mutate_bytes(bytes.substr(kHead, bytes.size() - kHead - kTail), draws);
  return draws.one_in(8) ? mutate_bytes(bytes, draws) : wire::print_state_file(body);
}

}  // namespace

std::vector<Target> rendezvous_targets() {
  const wire::SchedulerState state{.num_workers = 2,
                                   .generation = 5,
                                   .last_token = 9,
                                   .num_losses = 3,
                                   .is_running = true,
                                   .nodes = {{"a/0", "left", 1, 17, 4, 8, false}, {"b/0", "right", 0, 18, 0, 9, true}},
                                   .blobs = {{"seed", "42"}},
                                   .num_ranks = 2,
                                   .num_first_ranks = 3,
                                   .fixed_by = "its strategies are for 2 ranks",
                                   .dropped = {{"c/0", 7}},
                                   .is_over = true,
                                   .end = {true, "b/0", 0, "the shape is wrong"}};
  return {target_of("rendezvous_peer", wire::Sender::kPeer),
          target_of("rendezvous_scheduler", wire::Sender::kScheduler),
          {"rendezvous_state", {wire::print_scheduler_state(state)}, mutate_state, state_parses}};
}

}  // namespace tessera::fuzz
