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

constexpr std::array<std::string_view, 4> kKinds = {"receive", "await", "run", "send"};
constexpr std::array kPhases = {PhaseKind::kForward, PhaseKind::kBackward, PhaseKind::kWeightGradient,
                                PhaseKind::kUpdate};

std::string print(const ProgramItem& item) {
  std::string text = fmt::format("{} {}", kKinds[static_cast<size_t>(item.kind)], pipeline::to_string(item.phase));
  if (item.micro_batch >= 0) text += fmt::format(" m{} slot {}", item.micro_batch, item.slot);
  if (item.kind == ItemKind::kSend) text += fmt::format(" to stage {}", item.peer);
  if (item.kind == ItemKind::kReceive || item.kind == ItemKind::kAwait)
    text += fmt::format(" from stage {}", item.peer);
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

ProgramItem parse_item(ProgramLine& line) {
  ProgramItem item;
  std::optional<ItemKind> kind;
  for (size_t i = 0; i < kKinds.size() && !kind; ++i) {
    if (line.take(kKinds[i])) kind = static_cast<ItemKind>(i);
  }
  if (!kind) line.fail("receive, await, run or send");
  item.kind = *kind;
  line.expect(" ");
  bool known = false;
  for (const PhaseKind phase : kPhases) {
    if (known || !line.take(pipeline::to_string(phase))) continue;
    item.phase = phase;
    known = true;
  }
  if (!known) line.fail("a phase");
  if (line.take(" m")) {
    item.micro_batch = line.number();
    line.expect(" slot ");
    item.slot = line.number();
  }
  if (item.kind == ItemKind::kSend) {
    line.expect(" to stage ");
    item.peer = line.number();
  } else if (item.kind != ItemKind::kRun) {
    line.expect(" from stage ");
    item.peer = line.number();
  }
  line.end();
  return item;
}

// A lane of messages, and how many have been started at its ends.
struct Lane {
  int from = 0;
  PhaseKind made = PhaseKind::kForward;
  int to = 0;
  auto operator<=>(const Lane&) const = default;
};

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
      faults.push_back(fmt::format("stage {} waits for ever at \"{}\"", s, print(programs_[s].items[at_[s]])));
    }
    return faults;
  }

 private:
  bool step(size_t s) {
    const ProgramItem& item = programs_[s].items[at_[s]];
    if (item.micro_batch >= 0 && !may_use_slot(s, item)) return false;
    switch (item.kind) {
      case ItemKind::kReceive: received_[lane_of(s, item)].insert(item.micro_batch); return true;
      case ItemKind::kSend: sent_[lane_of(s, item)].insert(item.micro_batch); return true;
      case ItemKind::kAwait: return sent_[lane_of(s, item)].contains(item.micro_batch);
      case ItemKind::kRun: return true;
    }
    return true;
  }
  static Lane lane_of(size_t s, const ProgramItem& item) {
    const int stage = static_cast<int>(s);
    return item.kind == ItemKind::kSend ? Lane{stage, item.phase, item.peer} : Lane{item.peer, item.phase, stage};
  }
  // What was sent of the micro-batch before has left.
  bool may_use_slot(size_t s, const ProgramItem& item) {
    const int before = item.micro_batch - programs_[s].slots;
    if (before < 0) return true;
    for (const auto& [lane, sent] : sent_) {
      if (lane.from == static_cast<int>(s) && sent.contains(before) && !received_[lane].contains(before)) return false;
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
      if (item.kind != kind) continue;
      const Lane lane = kind == ItemKind::kSend ? Lane{program.stage, item.phase, item.peer}
                                                : Lane{item.peer, item.phase, program.stage};
      found[lane].push_back(item.micro_batch);
    }
  }
  return found;
}

// The order of one stage's items.
class OrderVerifier {
 public:
  OrderVerifier(const Program& program, std::vector<std::string>& faults) : program_(program), faults_(faults) {
    for (const ProgramItem& item : program.items) {
      if (item.kind == ItemKind::kRun && item.micro_batch >= 0) kinds_.insert(item.phase);
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
    for (const PhaseKind kind : kinds_) {
      if (next_[kind] == program_.micro_batches) continue;
      faults_.push_back(fmt::format("stage {}: {} of {} micro-batches have a {}", program_.stage, next_[kind],
                                    program_.micro_batches, pipeline::to_string(kind)));
    }
  }

 private:
  using Message = std::tuple<PhaseKind, int, int>;
  static Message message_of(const ProgramItem& item) { return {item.phase, item.micro_batch, item.peer}; }

  void fault(const ProgramItem& item, std::string_view what) {
    faults_.push_back(fmt::format("stage {}, \"{}\": {}", program_.stage, print(item), what));
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
    if (item.kind == ItemKind::kSend && next_[item.phase] != program_.micro_batches) fault(item, "has not run yet");
  }

  void verify(const ProgramItem& item) {
    if (is_updated_) fault(item, "comes after the update");
    if (item.micro_batch >= program_.micro_batches) fault(item, "there is no such micro-batch");
    if (item.slot < 0 || item.slot >= program_.slots) fault(item, "there is no such slot");
    const auto [held, is_free] = holder_.try_emplace(item.slot, item.micro_batch);
    if (!is_free && held->second != item.micro_batch) {
      if (done_[held->second] != kinds_) fault(item, fmt::format("the slot is that of m{}", held->second));
      held->second = item.micro_batch;
    }
    if (item.kind == ItemKind::kSend && !done_[item.micro_batch].contains(item.phase)) fault(item, "has not run yet");
    if (item.kind != ItemKind::kRun) return;
    if (item.micro_batch != next_[item.phase]++) fault(item, "micro-batches are not in order");
    for (const PhaseKind before : kinds_) {
      if (before < item.phase && !done_[item.micro_batch].contains(before)) {
        fault(item, fmt::format("comes before its {}", pipeline::to_string(before)));
      }
    }
    done_[item.micro_batch].insert(item.phase);
  }

  const Program& program_;
  std::vector<std::string>& faults_;
  std::set<PhaseKind> kinds_;
  std::map<PhaseKind, int> next_;            // by phase: the micro-batch that comes next
  std::map<int, int> holder_;                // by slot
  std::map<int, std::set<PhaseKind>> done_;  // by micro-batch
  std::set<Message> posted_;                 // receives
  bool is_updated_ = false;
};

}  // namespace

std::string print(const Program& program) {
  std::string text = fmt::format("program of stage {} of {}: {} micro-batches in {} slots\n", program.stage,
                                 program.num_stages, program.micro_batches, program.slots);
  for (const ProgramItem& item : program.items) text += "  " + print(item) + "\n";
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
      program.items.push_back(parse_item(line));
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
    program.slots = line.number();
    line.expect(" slots");
    line.end();
  }
  if (!started) throw InvalidArgument("program text is empty: expected \"program of stage N of M: ...\"");
  return program;
}

std::vector<std::string> verify_programs(std::span<const Program> programs) {
  std::vector<std::string> faults;
  for (size_t s = 0; s < programs.size(); ++s) {
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
    faults.push_back(fmt::format("stage {} sends other messages of {} to stage {} than that receives", lane.from,
                                 pipeline::to_string(lane.made), lane.to));
  }
  if (!faults.empty()) return faults;
  return Rehearsal(programs).run();
}

}  // namespace tessera::ir
