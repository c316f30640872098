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

void verify_order(const Program& program, std::vector<std::string>& faults) {
  const auto fault = [&](const ProgramItem& item, std::string_view what) {
    faults.push_back(fmt::format("stage {}, \"{}\": {}", program.stage, print(item), what));
  };
  std::set<PhaseKind> kinds;
  for (const ProgramItem& item : program.items) {
    if (item.kind == ItemKind::kRun && item.micro_batch >= 0) kinds.insert(item.phase);
  }
  std::map<PhaseKind, int> next;                     // by phase: the micro-batch that comes next
  std::map<int, int> holder;                         // by slot
  std::map<int, std::set<PhaseKind>> done;           // by micro-batch
  std::set<std::tuple<PhaseKind, int, int>> posted;  // receives
  bool is_updated = false;
  for (const ProgramItem& item : program.items) {
    if (item.micro_batch < 0) {
      if (item.kind != ItemKind::kRun || item.phase != PhaseKind::kUpdate)
        fault(item, "only an update has no micro-batch");
      if (is_updated) fault(item, "the second update");
      is_updated = true;
      continue;
    }
    if (is_updated) fault(item, "comes after the update");
    if (item.micro_batch >= program.micro_batches) fault(item, "there is no such micro-batch");
    if (item.slot < 0 || item.slot >= program.slots) fault(item, "there is no such slot");
    const auto [held, is_free] = holder.try_emplace(item.slot, item.micro_batch);
    if (!is_free && held->second != item.micro_batch) {
      if (done[held->second] != kinds) fault(item, fmt::format("the slot is that of m{}", held->second));
      held->second = item.micro_batch;
    }
    const std::tuple message(item.phase, item.micro_batch, item.peer);
    if (item.kind == ItemKind::kReceive && !posted.insert(message).second) fault(item, "is received twice");
    if (item.kind == ItemKind::kAwait && !posted.contains(message)) fault(item, "is awaited before it is received");
    if (item.kind == ItemKind::kSend && !done[item.micro_batch].contains(item.phase)) fault(item, "has not run yet");
    if (item.kind != ItemKind::kRun) continue;
    if (item.micro_batch != next[item.phase]++) fault(item, "micro-batches are not in order");
    for (const PhaseKind before : kinds) {
      if (before < item.phase && !done[item.micro_batch].contains(before)) {
        fault(item, fmt::format("comes before its {}", pipeline::to_string(before)));
      }
    }
    done[item.micro_batch].insert(item.phase);
  }
  for (const PhaseKind kind : kinds) {
    if (next[kind] == program.micro_batches) continue;
    faults.push_back(fmt::format("stage {}: {} of {} micro-batches have a {}", program.stage, next[kind],
                                 program.micro_batches, pipeline::to_string(kind)));
  }
}

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
    verify_order(programs[s], faults);
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
