#include "tessera/ir/program.h"

#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::ir {
namespace {

using pipeline::PhaseKind;

constexpr std::array<std::string_view, 5> kKinds = {"receive", "await", "run", "send", "pass"};
constexpr std::array kPhases = {PhaseKind::kForward, PhaseKind::kBackward, PhaseKind::kWeightGradient,
                                PhaseKind::kUpdate};

// " c3", unless it is the number that is expected.
std::string chunk_text(int chunk, int expected) { return chunk == expected ? "" : fmt::format(" c{}", chunk); }

std::string print(const ProgramItem& item, int stage) {
  std::string text = fmt::format("{} {}", kKinds[static_cast<size_t>(item.kind)], pipeline::to_string(item.phase));
  const bool is_joint = item.micro_batch < 0;
  if (!is_joint) {
    text += fmt::format("{} m{} slot {}", chunk_text(item.chunk, stage), item.micro_batch, item.slot);
  }
  const auto peer = [&] {
    return fmt::format("stage {}{}", item.peer, chunk_text(item.peer_chunk, is_joint ? -1 : item.peer));
  };
  switch (item.kind) {
    case ItemKind::kRun: return text;
    case ItemKind::kReceive:
    case ItemKind::kAwait: return text + " from " + peer();
    case ItemKind::kSend:
    case ItemKind::kPass: return text + " to " + peer();
  }
  return text;
}

class ProgramLine {
 public:
  ProgramLine(std::string_view text, int number) : rest_(trim(text)), number_(number) {}

  [[noreturn]] void fail(std::string_view expected) const {
    throw InvalidArgument("program text, line {}: expected {} at \"{}\"", number_, expected, rest_.substr(0, 40));
  }
  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail(fmt::format("\"{}\"", word));
  }
  int number() {
    size_t digits = 0;
    while (digits < rest_.size() && digits < 9 && rest_[digits] >= '0' && rest_[digits] <= '9') ++digits;
    if (digits == 0) fail("a number");
    int value = 0;
    for (size_t i = 0; i < digits; ++i) value = value * 10 + (rest_[i] - '0');
    rest_.remove_prefix(digits);
    return value;
  }
  void end() const {
    if (!rest_.empty()) fail("the end of the line");
  }

 private:
  std::string_view rest_;
  int number_;
};

ProgramItem parse_item(ProgramLine& line, int stage) {
  ProgramItem item;
  std::optional<ItemKind> kind;
  for (size_t i = 0; i < kKinds.size() && !kind; ++i) {
    if (line.take(kKinds[i])) kind = static_cast<ItemKind>(i);
  }
  if (!kind) line.fail("receive, await, run, send or pass");
  item.kind = *kind;
  line.expect(" ");
  bool known = false;
  for (const PhaseKind phase : kPhases) {
    if (known || !line.take(pipeline::to_string(phase))) continue;
    item.phase = phase;
    known = true;
  }
  if (!known) line.fail("a phase");
  if (line.take(" c")) {
    item.chunk = line.number();
    line.expect(" m");
    item.micro_batch = line.number();
  } else if (line.take(" m")) {
    item.chunk = stage;
    item.micro_batch = line.number();
  }
  if (item.micro_batch >= 0) {
    line.expect(" slot ");
    item.slot = line.number();
  }
  if (item.kind != ItemKind::kRun) {
    line.expect(item.kind == ItemKind::kSend || item.kind == ItemKind::kPass ? " to stage " : " from stage ");
    item.peer = line.number();
    if (item.micro_batch >= 0) item.peer_chunk = line.take(" c") ? line.number() : item.peer;
  }
  line.end();
  return item;
}

// A lane of messages between chunks; those of all micro-batches together pass between stages.
struct Lane {
  int from = 0;
  PhaseKind made = PhaseKind::kForward;
  int to = 0;
  bool of_all = false;
  auto operator<=>(const Lane&) const = default;
};

Lane lane_of(const Program& program, const ProgramItem& item) {
  const bool of_all = item.micro_batch < 0;
  const int here = of_all ? program.stage : item.chunk;
  const int there = of_all ? item.peer : item.peer_chunk;
  if (item.kind == ItemKind::kSend || item.kind == ItemKind::kPass) return {here, item.phase, there, of_all};
  return {there, item.phase, here, of_all};
}

// How many slots the chunk has; 0: it is none of the stage's.
int slots_of(const Program& program, int chunk) {
  const auto it = program.slots.find(chunk);
  return it == program.slots.end() ? 0 : it->second;
}

// Runs the programs against each other: nothing is ever late, and nothing waits that need not.
class Rehearsal {
 public:
  explicit Rehearsal(std::span<const Program> programs) : programs_(programs), at_(programs.size()) {}

  std::vector<std::string> run() {
    bool moves = true;
    while (moves) {
      moves = false;
      for (size_t s = 0; s < programs_.size(); ++s) {
        while (at_[s] < programs_[s].items.size() && step(s)) {
          ++at_[s];
          moves = true;
        }
      }
    }
    std::vector<std::string> faults;
    for (size_t s = 0; s < programs_.size(); ++s) {
      if (at_[s] == programs_[s].items.size()) continue;
      faults.push_back(
          fmt::format("stage {} waits for ever at \"{}\"", s, print(programs_[s].items[at_[s]], programs_[s].stage)));
    }
    return faults;
  }

 private:
  bool step(size_t s) {
    const ProgramItem& item = programs_[s].items[at_[s]];
    if (item.micro_batch >= 0 && !may_use_slot(s, item.chunk, item.micro_batch)) return false;
    const Lane lane = lane_of(programs_[s], item);
    switch (item.kind) {
      case ItemKind::kReceive: received_[lane].insert(item.micro_batch); return true;
      case ItemKind::kSend: sent_[lane].insert(item.micro_batch); return true;
      case ItemKind::kAwait: return sent_[lane].contains(item.micro_batch);
      case ItemKind::kRun: return true;
      case ItemKind::kPass: return may_use_slot(s, item.peer_chunk, item.micro_batch);
    }
    return true;
  }
  // What was sent of the micro-batch before has left.
  bool may_use_slot(size_t s, int chunk, int micro_batch) {
    const int before = micro_batch - slots_of(programs_[s], chunk);
    if (before < 0) return true;
    for (const auto& [lane, sent] : sent_) {
      const bool is_ours = lane.from == chunk && !lane.of_all;
      if (is_ours && sent.contains(before) && !received_[lane].contains(before)) return false;
    }
    return true;
  }

  std::span<const Program> programs_;
  std::vector<size_t> at_;
  std::map<Lane, std::set<int>> sent_;
  std::map<Lane, std::set<int>> received_;
};

// The micro-batches of the messages of each lane, as one end has them.
std::map<Lane, std::vector<int>> messages(std::span<const Program> programs, ItemKind kind) {
  std::map<Lane, std::vector<int>> found;
  for (const Program& program : programs) {
    for (const ProgramItem& item : program.items) {
      if (item.kind == kind) found[lane_of(program, item)].push_back(item.micro_batch);
    }
  }
  return found;
}

// The order of one stage's items.
class OrderVerifier {
 public:
  OrderVerifier(const Program& program, std::vector<std::string>& faults) : program_(program), faults_(faults) {
    for (const ProgramItem& item : program.items) {
      if (item.kind == ItemKind::kRun && item.micro_batch >= 0) kinds_[item.chunk].insert(item.phase);
    }
  }

  void run() {
    for (const ProgramItem& item : program_.items) {
      if (item.kind == ItemKind::kReceive && !posted_.insert(message_of(item)).second) fault(item, "is received twice");
      if (item.kind == ItemKind::kAwait && !posted_.contains(message_of(item))) {
        fault(item, "is awaited before it is received");
      }
      if (item.micro_batch < 0) {
        verify_joint(item);
      } else {
        verify(item);
      }
    }
    for (const auto& [chunk, kinds] : kinds_) {
      for (const PhaseKind kind : kinds) {
        const int count = next_[{chunk, kind}];
        if (count == program_.micro_batches) continue;
        const auto where = chunk == program_.stage ? "" : fmt::format(", chunk {}", chunk);
        faults_.push_back(fmt::format("stage {}{}: {} of {} micro-batches have a {}", program_.stage, where, count,
                                      program_.micro_batches, pipeline::to_string(kind)));
      }
    }
  }

 private:
  using Message = std::tuple<PhaseKind, int, int, int, int>;
  static Message message_of(const ProgramItem& item) {
    return {item.phase, item.micro_batch, item.peer, item.peer_chunk, item.chunk};
  }

  void fault(const ProgramItem& item, std::string_view what) {
    faults_.push_back(fmt::format("stage {}, \"{}\": {}", program_.stage, print(item, program_.stage), what));
  }

  // The update, and what is of all micro-batches together.
  void verify_joint(const ProgramItem& item) {
    if (item.kind == ItemKind::kRun) {
      if (item.phase != PhaseKind::kUpdate) fault(item, "only an update has no micro-batch");
      if (is_updated_) fault(item, "the second update");
      is_updated_ = true;
      return;
    }
    if (item.phase == PhaseKind::kUpdate) {
      if (!is_updated_) fault(item, "comes before the update");
      return;
    }
    if (is_updated_) fault(item, "comes after the update");
    if (item.kind != ItemKind::kSend) return;
    for (const auto& [chunk, kinds] : kinds_) {
      if (kinds.contains(item.phase) && next_[{chunk, item.phase}] != program_.micro_batches) {
        return fault(item, "has not run yet");
      }
    }
  }

  // The micro-batch has the slot from here on.
  void take(const ProgramItem& item, int chunk, int slot) {
    if (slot < 0 || slot >= slots_of(program_, chunk)) return fault(item, "there is no such slot");
    const auto [held, is_free] = holder_.try_emplace({chunk, slot}, item.micro_batch);
    if (is_free || held->second == item.micro_batch) return;
    if (done_[{chunk, held->second}] != kinds_[chunk]) {
      fault(item, fmt::format("the slot is that of m{}", held->second));
    }
    held->second = item.micro_batch;
  }

  void verify(const ProgramItem& item) {
    if (is_updated_) fault(item, "comes after the update");
    if (item.micro_batch >= program_.micro_batches) fault(item, "there is no such micro-batch");
    if (item.kind == ItemKind::kPass) verify_pass(item);
    take(item, item.chunk, item.slot);
    const auto& done = done_[{item.chunk, item.micro_batch}];
    if ((item.kind == ItemKind::kSend || item.kind == ItemKind::kPass) && !done.contains(item.phase)) {
      fault(item, "has not run yet");
    }
    if (item.kind != ItemKind::kRun) return;
    if (item.micro_batch != next_[{item.chunk, item.phase}]++) fault(item, "micro-batches are not in order");
    for (const PhaseKind before : kinds_[item.chunk]) {
      if (before < item.phase && !done.contains(before)) {
        fault(item, fmt::format("comes before its {}", pipeline::to_string(before)));
      }
    }
    done_[{item.chunk, item.micro_batch}].insert(item.phase);
  }

  void verify_pass(const ProgramItem& item) {
    if (item.peer != program_.stage) fault(item, "that is another stage: it must be sent");
    const auto held = holder_.find({item.chunk, item.slot});
    if (held == holder_.end() || held->second != item.micro_batch) fault(item, "the slot is another micro-batch's");
    const int slots = slots_of(program_, item.peer_chunk);
    take(item, item.peer_chunk, slots == 0 ? -1 : item.micro_batch % slots);
  }

  using At = std::pair<int, int>;
  const Program& program_;
  std::vector<std::string>& faults_;
  std::map<int, std::set<PhaseKind>> kinds_;       // by chunk
  std::map<std::pair<int, PhaseKind>, int> next_;  // by chunk and phase: the micro-batch that comes next
  std::map<At, int> holder_;                       // by chunk and slot
  std::map<At, std::set<PhaseKind>> done_;         // by chunk and micro-batch
  std::set<Message> posted_;                       // receives
  bool is_updated_ = false;
};

}  // namespace

std::string print(const Program& program) {
  std::string text = fmt::format("program of stage {} of {}: {} micro-batches in {} slots", program.stage,
                                 program.num_stages, program.micro_batches, slots_of(program, program.stage));
  for (const auto& [chunk, slots] : program.slots) {
    if (chunk != program.stage) text += fmt::format(", c{} in {} slots", chunk, slots);
  }
  text += "\n";
  for (const ProgramItem& item : program.items) text += "  " + print(item, program.stage) + "\n";
  return text;
}

Program parse_program(std::string_view text) {
  Program program;
  int number = 0;
  bool started = false;
  for (const auto raw : split(text, '\n')) {
    ++number;
    if (trim(raw).empty()) continue;
    ProgramLine line(raw, number);
    if (started) {
      program.items.push_back(parse_item(line, program.stage));
      continue;
    }
    started = true;
    line.expect("program of stage ");
    program.stage = line.number();
    line.expect(" of ");
    program.num_stages = line.number();
    line.expect(": ");
    program.micro_batches = line.number();
    line.expect(" micro-batches in ");
    program.slots[program.stage] = line.number();
    line.expect(" slots");
    while (line.take(", c")) {
      const int chunk = line.number();
      line.expect(" in ");
      program.slots[chunk] = line.number();
      line.expect(" slots");
    }
    line.end();
  }
  if (!started) throw InvalidArgument("program text is empty: expected \"program of stage N of M: ...\"");
  return program;
}

std::vector<std::string> verify_programs(std::span<const Program> programs) {
  std::vector<std::string> faults;
  size_t num_chunks = 0;
  for (size_t s = 0; s < programs.size(); ++s) {
    num_chunks += programs[s].slots.size();
    if (programs[s].stage != static_cast<int>(s)) {
      faults.push_back(fmt::format("the program of stage {} stands in the place of stage {}", programs[s].stage, s));
    }
    OrderVerifier(programs[s], faults).run();
  }
  const auto sent = messages(programs, ItemKind::kSend);
  const auto received = messages(programs, ItemKind::kReceive);
  std::set<Lane> lanes;
  for (const auto* ends : {&sent, &received}) {
    for (const auto& [lane, list] : *ends) lanes.insert(lane);
  }
  for (const Lane& lane : lanes) {
    if (sent.contains(lane) && received.contains(lane) && sent.at(lane) == received.at(lane)) continue;
    const auto what = lane.of_all || num_chunks <= programs.size() ? "stage" : "chunk";
    faults.push_back(fmt::format("{0} {1} sends other messages of {2} to {0} {3} than that receives", what, lane.from,
                                 pipeline::to_string(lane.made), lane.to));
  }
  if (!faults.empty()) return faults;
  return Rehearsal(programs).run();
}

}  // namespace tessera::ir
