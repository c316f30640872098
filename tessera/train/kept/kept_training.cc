#include "tessera/train/kept/kept_training.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/printable.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/write/sharing.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::train {
namespace {

constexpr const char* kWho = "going on after a loss";
constexpr size_t kPlaceAlignment = 64;
constexpr size_t kMaxId = 64;

// For the state of the data's source, where that tells it: several times that of a generator of random numbers.
constexpr size_t kStateRoom = 64 << 10;

// Less is copied in the time in which a thread wakes up.
constexpr size_t kMinBytesBeside = 256 << 10;

// Between what a rank has kept and what it has kept for another one; no line of a piece is without tabs.
constexpr const char* kNextVersion = "next\n";

size_t place_bytes(size_t bytes) { return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment; }

// Whose training writes to the memory of a rank, beside its steps, too. In one of its callbacks the rank may train
// another model, which has the same memory.
class MemoryOwners {
 public:
  // Never destroyed: a model may be destroyed after everything else.
  static MemoryOwners& all() {
    static MemoryOwners& only = *new MemoryOwners;
    return only;
  }
  // Has the one before let go, if that was another one.
  void take(const cluster::Recovery* rank, const void* owner, std::function<void()> let_go) {
    std::function<void()> before;
    {
      const std::lock_guard lock(mutex_);
      Owner& present = owners_[rank];
      if (present.owner == owner) return;
      before = std::exchange(present, {owner, std::move(let_go)}).let_go;
    }
    if (before) before();
  }
  void leave(const cluster::Recovery* rank, const void* owner) {
    const std::lock_guard lock(mutex_);
    const auto found = owners_.find(rank);
    if (found != owners_.end() && found->second.owner == owner) owners_.erase(found);
  }

 private:
  struct Owner {
    const void* owner = nullptr;
    std::function<void()> let_go = {};
  };
  std::mutex mutex_;
  std::map<const cluster::Recovery*, Owner> owners_;
};

}  // namespace

// Before the text of this rank's pieces, the state of its data and the values, which follow, each at a multiple of
// kPlaceAlignment: first those of which other ranks have no copy, then the others. Its buddy has what comes before
// these.
struct KeptTraining::Head {
  int64_t model = 0;     // of the process's
  int64_t training = 0;  // likewise
  int64_t step = 0;
  int64_t first_step = 0;
  int64_t is_done = 0;
  int64_t epoch = 0;
  int64_t step_in_epoch = 0;
  int64_t epoch_of_data = 0;
  int64_t batch = 0;
  int64_t rows_per_batch = 0;
  int64_t generation = 0;  // that kept it, in an elastic job: after a resize a step has other sums
  int64_t num_ranks = 0;   // that train together
  int64_t rank = 0;        // of these
  int64_t pieces_bytes = 0;
  int64_t state_room = 0;    // for the state of its data
  int64_t state_bytes = 0;   // of that
  int64_t own_bytes = 0;     // from the beginning to the first value of which all ranks have a copy
  uint64_t fingerprint = 0;  // of the values' names and types
  // A later step of the training whose callbacks this rank has called, and which it has begun to keep: it can go on
  // after that step, too, with what another rank has kept of it. 0: there is none.
  int64_t next_step = 0;
  char id[kMaxId] = {};
};

struct KeptTraining::Version {
  Head head;
  std::span<const std::byte> bytes;
  std::span<const std::byte> whole;  // version of the memory, of which this may be a part

  // In a training a step counts, and that it is over is the last of all.
  int64_t order() const { return head.is_done != 0 ? std::numeric_limits<int64_t>::max() : head.step; }
  // Which pieces of the values these are; "" where that cannot be.
  std::string_view pieces() const {
    const auto size = static_cast<size_t>(head.pieces_bytes);
    const size_t begin = place_bytes(sizeof(Head));
    if (head.pieces_bytes < 0 || begin > bytes.size() || size > bytes.size() - begin) return {};
    return {reinterpret_cast<const char*>(bytes.data()) + begin, size};
  }
  size_t state_at() const { return place_bytes(sizeof(Head)) + place_bytes(pieces().size()); }
  // "": there is none.
  std::string state() const {
    const bool is_within = head.state_bytes >= 0 && head.state_bytes <= head.state_room && values_at() <= bytes.size();
    if (!is_within) return "";
    return {reinterpret_cast<const char*>(bytes.data()) + state_at(), static_cast<size_t>(head.state_bytes)};
  }
  // Where the values begin.
  size_t values_at() const {
    return state_at() + static_cast<size_t>(head.state_room == static_cast<int64_t>(kStateRoom) ? kStateRoom : 0);
  }
};

// Those of its values: of what is kept for another rank, not those that all ranks have.
KeptPieces KeptTraining::pieces_of(const Version& version) const {
  KeptPieces pieces = parse_pieces(version.pieces());
  std::erase_if(pieces, [&](const auto& piece) {
    return piece.second.at >=
           static_cast<int64_t>(version.bytes.size() - std::min(version.bytes.size(), version.values_at()));
  });
  return pieces;
}

// What each rank has: as which rank it has kept a version, whether the values lie as they do now, and whether they are
// all there; else this rank knows that the step is done, no more.
struct KeptTraining::Holding {
  int64_t rank = 0;
  bool fits = false;
  bool is_whole = false;
};

KeptTraining::KeptTraining(ModelCore& core, TrainingIdentity& identity, TrainingProgress& progress, Snapshot& snapshot)
    : core_(core), identity_(identity), progress_(progress), recovery_(core.context.recovery()), snapshot_(snapshot) {
  snapshot_.set_beside(&copies_);
  if (recovery_ != nullptr) model_ = recovery_->next_number("model");
}

KeptTraining::~KeptTraining() {
  finish();
  if (recovery_ != nullptr) MemoryOwners::all().leave(recovery_, this);
  snapshot_.set_beside(nullptr);
}

size_t KeptTraining::state_room() const { return progress_.tells_state ? kStateRoom : 0; }

bool KeptTraining::trains_together() const { return core_.context.size() > 1 && core_.mode->is_shared(); }
int64_t KeptTraining::num_ranks() const { return trains_together() ? core_.context.size() : 1; }
int64_t KeptTraining::own_rank() const { return trains_together() ? core_.context.rank() : 0; }

checkpoint::HeldValue KeptTraining::held(const std::string& name) const {
  const session::Session& session = core_.bare_session();
  checkpoint::HeldValue value{.name = name, .type = session.global_type(name)};
  if (const auto layouts = session.layouts(name); !layouts.empty()) {
    value.layout = layouts.front();
    value.copies.assign(layouts.begin() + 1, layouts.end());
  }
  return value;
}

// Whether other ranks may take the value from this one: not where each has one of its own, and not a part of a sum.
bool KeptTraining::is_common(const std::string& name) const {
  const bool is_own = !core_.bare_session().is_split(name) && !core_.values->is_copy(name);
  const auto* layout = core_.bare_session().layout(name);
  return !is_own && (layout == nullptr || !layout->sharding.is_partial());
}

void KeptTraining::measure() {
  const session::Session& session = core_.bare_session();
  std::string text;
  std::string copies_text;
  KeptPieces pieces;
  order_ = session.names();
  const auto copies = std::ranges::stable_partition(order_, [&](const std::string& name) { return !has_copies(name); });
  size_t values_bytes = 0;
  size_t own_values_bytes = 0;
  for (const auto& name : order_) {
    const Type& type = session.values().type(name);
    std::string line = fmt::format("{} {}", name, type);
    // Two pieces of equal types are not the same where a value is split in another way.
    for (const auto& layout : session.layouts(name)) line += " " + layout.to_string();
    text += line += "\n";
    if (has_copies(name)) copies_text += line;
    const auto region = is_common(name) ? checkpoint::held_region(held(name), core_.context.rank()) : std::nullopt;
    if (region && region->shape == type.shape && !nn::is_accumulation_state(name)) {
      pieces[name] = {session.global_type(name), *region, static_cast<int64_t>(values_bytes)};
    }
    values_bytes += place_bytes(static_cast<size_t>(type.size_bytes()));
    if (!has_copies(name)) own_values_bytes = values_bytes;
  }
  pieces_text_ = print_pieces(pieces);
  own_bytes_ = place_bytes(sizeof(Head)) + place_bytes(pieces_text_.size()) + state_room() + own_values_bytes;
  size_bytes_ = own_bytes_ + values_bytes - own_values_bytes;
  fingerprint_ = hash_name(text);
  copies_fingerprint_ = copies.empty() ? 0 : hash_name(copies_text);
}

// Whether every rank has the value as it is here. The sums of micro-batches are each rank's own.
bool KeptTraining::has_copies(const std::string& name) const {
  return core_.values->is_copy(name) && !nn::is_accumulation_state(name);
}

std::vector<KeptTraining::Version> KeptTraining::own_versions() {
  std::vector<Version> found;
  std::vector<std::span<const std::byte>> kept;
  try {
    kept = recovery_->memory().versions();
  } catch (const IoError& error) {
    log_warning("{}; this rank takes what others have kept, or a checkpoint", error.what());
  }
  for (const auto bytes : kept) {
    if (bytes.size() < sizeof(Head)) continue;
    Version version;
    std::memcpy(&version.head, bytes.data(), sizeof(Head));
    version.bytes = version.whole = bytes;
    found.push_back(version);
  }
  return found;
}

// What this rank keeps for others: of each what only that one has.
std::vector<KeptTraining::Version> KeptTraining::versions_for_others() {
  std::vector<Version> found;
  std::vector<std::span<const std::byte>> kept;
  try {
    if (auto* memory = recovery_->memory_for_others()) kept = memory->versions();
  } catch (const IoError& error) {
    log_warning("{}; what this rank has kept for others is lost", error.what());
  }
  for (const auto whole : kept) {
    auto rest = whole;
    while (rest.size() >= sizeof(Head)) {
      Version version;
      std::memcpy(&version.head, rest.data(), sizeof(Head));
      const auto size = static_cast<size_t>(version.head.own_bytes);
      if (size < sizeof(Head) || size > rest.size()) break;
      version.bytes = rest.first(size);
      version.whole = whole;
      rest = rest.subspan(size);
      if (version.head.model != 0) found.push_back(version);  // 0: that rank could keep nothing
    }
  }
  return found;
}

KeptStep KeptTraining::key_of(const Version& version) const {
  const Head& head = version.head;
  return {head.training, head.model, version.order(), head.generation, head.num_ranks};
}

// Where all ranks can, and some rank has a value that only it has. Every rank calls it.
void KeptTraining::set_buddies() {
  buddies_.reset();
  if (!trains_together()) return;
  cluster::KeptMemory* memory = nullptr;
  try {
    if (keeps_ && !are_copies()) memory = recovery_->memory_for_others();
  } catch (const IoError& error) {
    log_warning("{}; no rank has a buddy", error.what());
  }
  // One that cannot says that it has nothing.
  const std::string own = fmt::format("{} {}", memory == nullptr ? 0 : own_bytes_, recovery_->keeper());
  std::vector<std::string> keepers;
  std::vector<int64_t> sizes;
  for (const std::string& text : session::gather_texts(core_.context.world(), own, kWho)) {
    sizes.push_back(parse_int(text.substr(0, text.find(' ')), kWho));
    keepers.push_back(text.substr(text.find(' ') + 1));
    if (sizes.back() == 0 || keepers.back().empty()) return;
  }
  const std::vector<int> buddies = find_buddies(keepers);
  if (std::ranges::all_of(buddies, [](int buddy) { return buddy < 0; })) return;
  buddies_.emplace(core_.context, *memory, buddies, sizes);
}

// Gives ranks whose memory is gone what others have of it. Returns whether there was one. Every rank calls it.
bool KeptTraining::restore(const std::vector<Version>& for_others) {
  if (!trains_together()) return false;
  const std::vector<Version> own = own_versions();
  RankMemory here{.fingerprint = fingerprint_,
                  .copies_fingerprint = copies_fingerprint_,
                  .own_bytes = static_cast<int64_t>(own_bytes_),
                  .has_copies = size_bytes_ > own_bytes_,
                  .has_any = !own.empty()};
  for (const Version& version : own) {
    if (fits(version)) here.own.insert(key_of(version));
  }
  for (const Version& version : for_others) {
    here.for_others.push_back(
        {key_of(version), version.head.rank, version.head.fingerprint, static_cast<int64_t>(version.bytes.size())});
  }
  std::vector<RankMemory> of_ranks;
  for (const std::string& text : session::gather_texts(core_.context.world(), print_memory(here), kWho)) {
    of_ranks.push_back(parse_memory(text));
  }
  const std::vector<KeptRestore> restores = find_restores(of_ranks, model_);
  for (const KeptRestore& one : restores) restore(one, own, for_others);
  return !restores.empty();
}

void KeptTraining::restore(const KeptRestore& restore, const std::vector<Version>& own,
                           const std::vector<Version>& for_others) {
  comm::Communicator& world = core_.context.world();
  const int rank = core_.context.rank();
  const auto give = [&](std::span<const std::byte> bytes) {
    world.send(bytes.data(), static_cast<int64_t>(bytes.size()), DType::kU8, restore.rank, kWho);
  };
  if (rank == restore.buddy) {
    const auto version = std::ranges::find_if(for_others, [&](const Version& one) {
      return one.head.rank == restore.rank && key_of(one) == restore.version;
    });
    give(version->bytes);
  }
  if (rank == restore.copies_from) {
    const auto version = std::ranges::find_if(own, [&](const Version& one) { return key_of(one) == restore.version; });
    give(version->bytes.subspan(own_bytes_));
  }
  if (rank != restore.rank) return;
  std::vector<std::byte> scratch;
  std::span<std::byte> to;
  try {
    to = recovery_->memory().begin(size_bytes_);
  } catch (const IoError& error) {
    log_warning("{}; what rank {} has kept for this one is lost", error.what(), restore.buddy);
    scratch.resize(size_bytes_);
    to = scratch;
  }
  world.receive(to.data(), static_cast<int64_t>(own_bytes_), DType::kU8, restore.buddy, kWho);
  if (restore.copies_from >= 0) {
    world.receive(to.data() + own_bytes_, static_cast<int64_t>(size_bytes_ - own_bytes_), DType::kU8,
                  restore.copies_from, kWho);
  }
  if (scratch.empty()) recovery_->memory().commit();
}

// Whether all that a rank has is a copy of what every rank has.
bool KeptTraining::are_copies() const {
  if (!core_.mode->is_shared() || core_.mode->has_own_statistics()) return false;
  return std::ranges::all_of(core_.bare_session().names(), [&](const std::string& name) {
    return core_.values->is_copy(name) || nn::is_accumulation_state(name);
  });
}

// Whether a version of this model can be taken as it is.
bool KeptTraining::fits(const Version& version) const {
  const Head& head = version.head;
  if (head.fingerprint != fingerprint_ || version.bytes.size() != size_bytes_) return false;
  return (head.num_ranks == num_ranks() && head.rank == own_rank()) || are_copies();
}

// Whether a step may be kept beside the next one. A rank that is killed meanwhile leaves an older one: so others must
// have all that it has. On a device only its queue's thread reads values.
bool KeptTraining::may_copy_beside() const {
  if (!keeps_ || !trains_together() || !are_copies() || size_bytes_ < kMinBytesBeside) return false;
  if (progress_.tells_state) return false;  // each rank's own
  return core_.bare_session().values().in_place(order_.front()).has_value();
}

// What this rank has, for the others: a line for each version, then one for each step of which it knows that it is
// done.
std::string KeptTraining::lines_of(const std::vector<Version>& versions) const {
  std::string lines;
  std::string lines_of_next;
  for (const Version& version : versions) {
    const Head& head = version.head;
    const bool is_fit = head.model == model_ && fits(version);
    // Values of the same ranks that lie in another way are of another training.
    const bool is_resized = head.num_ranks != num_ranks() || head.rank != own_rank();
    if (head.model == model_ && !is_fit && !is_resized) continue;
    const auto line = [&](int64_t order, bool is_whole) {
      return fmt::format("{} {} {} {} {} {} {} {}\n", head.training, head.model, order, head.generation, head.num_ranks,
                         head.rank, is_fit ? 1 : 0, is_whole ? 1 : 0);
    };
    lines += line(version.order(), /*is_whole=*/true);
    if (head.next_step != 0) lines_of_next += line(head.next_step, /*is_whole=*/false);
  }
  return lines + lines_of_next;
}

std::vector<KeptTraining::Holdings> KeptTraining::gather(const std::vector<Version>& versions) {
  const std::string own = lines_of(versions);
  const std::vector<std::string> of_ranks =
      trains_together() ? session::gather_texts(core_.context.world(), own, kWho) : std::vector{own};
  std::vector<Holdings> kept(of_ranks.size());
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (const auto line : split(of_ranks[rank], '\n')) {
      const auto words = split(line, ' ');
      if (words.size() != 8) continue;
      const KeptStep one{parse_int(words[0], kWho), parse_int(words[1], kWho), parse_int(words[2], kWho),
                         parse_int(words[3], kWho), parse_int(words[4], kWho)};
      // Of a version that is there the rank may also say that it is done.
      kept[rank].emplace(one, Holding{parse_int(words[5], kWho), words[6] == "1", words[7] == "1"});
    }
  }
  return kept;
}

namespace {

// Whether some rank is not there of those that have kept such versions.
template <typename Holdings, typename KeptStep>
bool is_any_lost(const std::vector<Holdings>& kept, const KeptStep& latest) {
  std::set<int64_t> there;
  for (const auto& of_rank : kept) {
    for (const auto& [one, holding] : of_rank) {
      if (one.generation == latest.generation && one.num_ranks == latest.num_ranks) there.insert(holding.rank);
    }
  }
  return static_cast<int64_t>(there.size()) < latest.num_ranks;
}

}  // namespace

KeptTraining::Found KeptTraining::begin(const std::function<bool()>& load) {
  first_step_ = progress_.step;
  if (recovery_ == nullptr) return Found::kNothing;
  finish();
  newest_ = nullptr;
  own_memory();
  number_ = recovery_->next_number("training");
  why_nothing_.clear();
  has_later_ = false;
  agree_on_keeping();
  measure();
  copies_beside_ = may_copy_beside();
  set_buddies();
  if (recovery_->generation() == 1) return Found::kNothing;

  const std::vector<Version> for_others = versions_for_others();
  const bool is_restored = restore(for_others);
  // Each rank says what it has: the training, the model, and where it stood.
  const std::vector<Version> versions = own_versions();
  const std::vector<Holdings> kept = gather(versions);
  KeptStep latest{};
  for (const Holdings& of_rank : kept) {
    if (!of_rank.empty()) latest = std::max(latest, of_rank.rbegin()->first);
  }
  // Another model is trained later in the program: this training is repeated, and what was kept of that one stays.
  if (latest.training > number_ && latest.model != model_) {
    keeps_ = false;
    why_nothing_ = "another model has been trained since, and this one would have to be trained again first";
    return Found::kNothing;
  }
  const bool is_known = latest.training >= number_ && latest.model == model_;
  if (is_known) {
    // The newest that all have, or know to be done, who have anything.
    std::set<KeptStep> common;
    size_t num_holders = 0;
    for (const Holdings& of_rank : kept) {
      if (of_rank.empty()) continue;
      if (num_holders++ == 0) {
        for (const auto& [one, holding] : of_rank) common.insert(one);
      } else {
        std::erase_if(common, [&](const KeptStep& one) { return !of_rank.contains(one); });
      }
    }
    std::erase_if(common, [&](const KeptStep& one) { return one.training < number_ || one.model != model_; });
    // Who is not there, or has nothing, may have been lost before its callbacks were called for the newest step: those
    // are due again. They were called for the one before, for without that rank nobody has made a later step. Where the
    // job only saves, no callback follows.
    if (common.size() > 1 && !is_last() && (is_restored || is_any_lost(kept, latest))) common.erase(latest);
    for (auto chosen = common.rbegin(); chosen != common.rend(); ++chosen) {
      if (!take(*chosen, kept, versions, for_others)) {
        if (missing_.empty()) missing_ = "no rank that is left has all of it";
        const bool is_end = chosen->order == std::numeric_limits<int64_t>::max();
        const std::string step = is_end ? "the last step" : fmt::format("step {}", chosen->order);
        if (why_nothing_.empty()) why_nothing_ = fmt::format("of {}, {}", step, missing_);
        continue;
      }
      core_.values->set_changed();
      core_.values->compare_again();
      const bool is_over = chosen->training > number_ || chosen->order == std::numeric_limits<int64_t>::max();
      has_later_ = latest.training > number_;
      return is_over ? Found::kDone : Found::kMiddle;
    }
  }
  if (is_last()) {
    if (why_nothing_.empty()) why_nothing_ = "no step was kept that all of them have done";
    return Found::kNothing;
  }
  const bool speaks = recovery_->is_elastic() && own_rank() == 0 && is_known;
  if (speaks) {
    log_warning("generation {}: what {} of the {} ranks that have trained have kept is not whole: a checkpoint counts",
                recovery_->generation(),
                std::ranges::count_if(kept, [](const Holdings& of_rank) { return !of_rank.empty(); }),
                latest.num_ranks);
  }
  if (load()) {
    first_step_ = progress_.step;
  } else if (speaks) {
    log_warning("generation {}: there is no checkpoint: the training begins anew", recovery_->generation());
  }
  return Found::kNothing;
}

// Takes a version that all ranks have which have anything; false, on all ranks, where it does not make up the values.
bool KeptTraining::take(const KeptStep& chosen, const std::vector<Holdings>& kept, const std::vector<Version>& versions,
                        const std::vector<Version>& for_others) {
  const auto has = [&](const Holdings& of_rank) {
    const auto found = of_rank.find(chosen);
    return found != of_rank.end() && found->second.is_whole;
  };
  const auto num_holders = static_cast<size_t>(std::ranges::count_if(kept, has));
  missing_.clear();
  if (num_holders == 0) return false;  // all were lost while they copied it
  const bool all_fit =
      std::ranges::all_of(kept, [&](const Holdings& of_rank) { return !has(of_rank) || of_rank.at(chosen).fits; });
  const auto is_chosen = [&](const Version& version) { return key_of(version) == chosen; };
  const auto here = std::ranges::find_if(versions, is_chosen);
  const bool is_here = has(kept[static_cast<size_t>(own_rank())]);
  // The first one is this rank's own, or null.
  std::vector<const Version*> held_here = {is_here ? &*here : nullptr};
  for (const Version& version : for_others) {
    if (is_chosen(version)) held_here.push_back(&version);
  }
  std::string how;
  const auto forget_newer = [&] {
    // Who only knows that the step is done may have done a later one by then, with the values of another rank.
    const auto before = std::ranges::find_if(versions, [&](const Version& version) {
      KeptStep next = key_of(version);
      next.order = version.head.next_step;
      return version.head.next_step != 0 && next == chosen;
    });
    if (is_here) {
      recovery_->memory().forget_newer(here->whole);
    } else if (before != versions.end()) {
      recovery_->memory().forget_newer(before->whole);
    }
    const auto other = std::ranges::find_if(for_others, is_chosen);
    if (other != for_others.end()) recovery_->memory_for_others()->forget_newer(other->whole);
  };
  if (all_fit && (num_holders == kept.size() || are_copies())) {
    if (is_here) take(*here);
    forget_newer();
    if (num_holders < kept.size()) {
      give_copies(kept, has);
      how = fmt::format(", {} of {} ranks have what others had", kept.size() - num_holders, kept.size());
    }
  } else if ((recovery_->is_elastic() || is_last()) && take_pieces(held_here)) {
    how = fmt::format(", put together of what {} of {} ranks have kept", num_holders, kept.size());
    forget_newer();
    // For a next loss. The end of a training, and a later one, stay what they are.
    if (chosen.training == number_ && chosen.order == progress_.step) keep_now();
  } else {
    return false;
  }
  if (chosen.num_ranks != num_ranks()) {
    how = fmt::format(", with {} in place of {}{}", plural(num_ranks(), "rank"), chosen.num_ranks, how);
  }
  if (core_.context.rank() == 0) {
    log_info("generation {}: the training goes on after step {}{}", recovery_->generation(), progress_.step, how);
  }
  return true;
}

// Puts the values together of the pieces that ranks have kept, as other ranks, too, and for other ranks. `here`: this
// rank's, or null, and what it has kept for others. False, on all ranks, where they do not make up the whole; then
// nothing has changed. Every rank calls it.
bool KeptTraining::take_pieces(const std::vector<const Version*>& here) {
  std::string own;
  for (const Version* version : here) {
    if (version != here.front()) own += kNextVersion;
    if (version != nullptr) own += print_pieces(pieces_of(*version));
  }
  const std::vector<std::string> texts =
      trains_together() ? session::gather_texts(core_.context.world(), own, kWho) : std::vector{own};
  // By version, of all ranks, one rank's after the other's.
  std::vector<KeptPieces> of_versions;
  std::vector<int> ranks;
  std::vector<const Version*> held_here;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    size_t number = 0;
    for (size_t at = 0; at <= texts[rank].size(); ++number) {
      const size_t end = std::min(texts[rank].find(kNextVersion, at), texts[rank].size());
      of_versions.push_back(parse_pieces(std::string_view(texts[rank]).substr(at, end - at)));
      ranks.push_back(static_cast<int>(rank));
      held_here.push_back(static_cast<int64_t>(rank) == own_rank() ? here.at(number) : nullptr);
      at = end + std::string_view(kNextVersion).size();
    }
  }
  session::Session& session = core_.bare_session();
  std::vector<std::vector<PieceSource>> sources;
  std::vector<std::string> missing;
  for (const auto& name : session.names()) {
    const Type& type = session.global_type(name);
    auto& of_value = sources.emplace_back();
    // The sums of micro-batches are zeros between two steps.
    if (nn::is_accumulation_state(name) || type.shape.num_elements() == 0) continue;
    auto found = is_common(name) ? find_sources(of_versions, name, type) : std::nullopt;
    if (!found) {
      missing.push_back(name);
      continue;
    }
    of_value = *std::move(found);
  }
  if (!missing.empty()) {
    constexpr size_t kMostNamed = 3;
    const size_t num_missing = missing.size();
    missing.resize(std::min(num_missing, kMostNamed));
    missing_ = fmt::format("{} of {} values {} pieces that only a lost rank had: \"{}\"{}", num_missing,
                           session.names().size(), num_missing == 1 ? "lacks" : "lack", fmt::join(missing, "\", \""),
                           num_missing > kMostNamed ? fmt::format(" and {} more", num_missing - kMostNamed) : "");
    return false;
  }
  const auto holder = std::ranges::find_if(of_versions, [](const KeptPieces& pieces) { return !pieces.empty(); });
  const auto at = static_cast<size_t>(holder - of_versions.begin());
  Head head_of_holder = held_here.at(at) != nullptr ? held_here[at]->head : Head{};
  std::string state = held_here[at] != nullptr ? held_here[at]->state() : "";
  state.resize(state_room());
  share(&head_of_holder, sizeof(Head), ranks[at]);
  share(state.data(), state.size(), ranks[at]);
  state.resize(std::min(state.size(), static_cast<size_t>(head_of_holder.state_bytes)));
  go_on_as(head_of_holder, state);
  if (ranks[at] != own_rank()) say_state_of(ranks[at]);
  for (size_t i = 0; i < sources.size(); ++i) take_value(session.names()[i], sources[i], ranks, held_here);
  return true;
}

// One value at a time, and of that one piece: so this takes no more memory than the largest piece and its part here.
void KeptTraining::take_value(const std::string& name, const std::vector<PieceSource>& sources,
                              const std::vector<int>& ranks, const std::vector<const Version*>& held_here) {
  const checkpoint::HeldValue value = held(name);
  const auto wanted = checkpoint::held_region(value, core_.context.rank());
  Tensor piece;
  if (wanted) piece = Tensor(Type{value.type.dtype, wanted->shape});
  for (const PieceSource& source : sources) {
    const Tensor part(Type{value.type.dtype, source.region.shape});
    const auto bytes = part.bytes();
    if (const Version* version = held_here[source.version]; version != nullptr) {
      const size_t at = version->values_at() + static_cast<size_t>(source.at);
      check(at <= version->bytes.size() && bytes.size() <= version->bytes.size() - at,
            "a kept piece lies in its version");
      std::memcpy(bytes.data(), version->bytes.data() + at, bytes.size());
    }
    share(bytes.data(), bytes.size(), ranks[source.version]);
    const auto common = wanted ? checkpoint::intersection(*wanted, source.region) : std::nullopt;
    if (!common) continue;
    copy_elements(checkpoint::view_of(part.view(), checkpoint::relative(*common, source.region)),
                  checkpoint::view_of(piece.view(), checkpoint::relative(*common, *wanted)));
  }
  if (!wanted || sources.empty()) return;
  core_.bare_session().set_piece(name, piece.view());
  core_.values->set_taken({&name, 1});
}

// Ranks read other rows, but mostly draw as often for each.
void KeptTraining::say_state_of(int rank) const {
  if (progress_.data_state.empty()) return;
  log_warning("what the data set of this rank draws by itself it draws on from the state of rank {}'s", rank);
}

void KeptTraining::share(void* data, size_t size_bytes, int root) {
  if (!trains_together() || size_bytes == 0) return;
  core_.context.world().broadcast(data, static_cast<int64_t>(size_bytes), DType::kU8, root, kWho);
}

KeptTraining::Head KeptTraining::head(bool is_done) const {
  Head made{.model = model_,
            .training = number_,
            .step = progress_.step,
            .first_step = first_step_,
            .is_done = is_done ? 1 : 0,
            .epoch = progress_.epoch,
            .step_in_epoch = progress_.step_in_epoch,
            .epoch_of_data = progress_.position.epoch,
            .batch = progress_.position.batch,
            .rows_per_batch = progress_.rows_per_batch,
            .generation = recovery_->is_elastic() ? static_cast<int64_t>(recovery_->generation()) : 0,
            .num_ranks = num_ranks(),
            .rank = own_rank(),
            .pieces_bytes = static_cast<int64_t>(pieces_text_.size()),
            .state_room = static_cast<int64_t>(state_room()),
            .state_bytes = static_cast<int64_t>(kept_state().size()),
            .own_bytes = static_cast<int64_t>(own_bytes_),
            .fingerprint = fingerprint_};
  std::strncpy(made.id, identity_.known_id().c_str(), kMaxId - 1);
  return made;
}

std::string_view KeptTraining::kept_state() const {
  return progress_.data_state.size() <= state_room() ? std::string_view(progress_.data_state) : std::string_view("");
}

void KeptTraining::go_on_as(const Head& head, const std::string& data_state) {
  progress_ = {.step = head.step,
               .epoch = head.epoch,
               .step_in_epoch = head.step_in_epoch,
               .position = {.epoch = head.epoch_of_data, .batch = head.batch},
               .rows_per_batch = head.rows_per_batch,
               .tells_state = progress_.tells_state,
               .data_state = data_state,
               .is_state_due = !data_state.empty()};
  first_step_ = head.first_step;
  identity_.go_on_as(head.id);
}

void KeptTraining::take(const Version& version) {
  go_on_as(version.head, version.state());
  session::Values& values = core_.bare_session().values();
  size_t at = version.values_at();
  for (const auto& name : order_) {
    const Type& type = values.type(name);
    values.write(name, TensorView(const_cast<std::byte*>(version.bytes.data() + at), type));
    at += place_bytes(static_cast<size_t>(type.size_bytes()));
  }
  core_.values->set_taken(order_);
}

// Each rank that has nothing takes what all are to have alike from a holder, each from another one as far as there are
// as many. All meet every now and then, so that nobody waits for all of it at once. Every rank calls it.
void KeptTraining::give_copies(const std::vector<Holdings>& kept, FunctionRef<bool(const Holdings&)> has) {
  constexpr int64_t kBytesBetweenMeetings = int64_t{64} << 20;
  comm::Communicator& world = core_.context.world();
  std::vector<int> holders;
  std::vector<int> takers;
  for (size_t rank = 0; rank < kept.size(); ++rank) {
    (has(kept[rank]) ? holders : takers).push_back(static_cast<int>(rank));
  }
  std::optional<int> own_holder;
  std::vector<int> own_takers;
  for (size_t i = 0; i < takers.size(); ++i) {
    const int holder = holders[i % holders.size()];
    if (own_rank() == takers[i]) own_holder = holder;
    if (own_rank() == holder) own_takers.push_back(takers[i]);
  }
  const auto move = [&](const TensorView& view) {
    if (view.num_elements() == 0) return;
    if (own_holder) world.receive(view.data, view.num_elements(), view.dtype, *own_holder, kWho);
    for (const int taker : own_takers) world.send(view.data, view.num_elements(), view.dtype, taker, kWho);
  };
  Head of_holder = head(/*is_done=*/false);
  std::string state(kept_state());
  state.resize(state_room());
  move({&of_holder, {DType::kU8, {static_cast<int64_t>(sizeof(of_holder))}}});
  move({state.data(), {DType::kU8, {static_cast<int64_t>(state.size())}}});
  if (own_holder) {
    state.resize(std::min(state.size(), static_cast<size_t>(of_holder.state_bytes)));
    go_on_as(of_holder, state);
    say_state_of(*own_holder);
  }
  session::Session& session = core_.bare_session();
  const bool moves = own_holder || !own_takers.empty();
  int64_t bytes = 0;
  for (const auto& name : session.names()) {
    if (nn::is_accumulation_state(name)) continue;  // zeros between two steps
    const Type& type = session.values().type(name);
    if (moves) {
      const auto in_place = session.values().in_place(name);
      const Tensor copy = in_place ? Tensor() : session.values().read(name);
      move(in_place ? *in_place : copy.view());
      if (own_holder && !in_place) session.values().write(name, copy.view());
      if (own_holder) core_.values->set_taken({&name, 1});
    }
    if ((bytes += type.size_bytes()) < kBytesBetweenMeetings) continue;
    world.barrier(kWho);
    bytes = 0;
  }
}

void KeptTraining::keep(bool is_done) {
  const int64_t step = progress_.step - first_step_;
  if (!keeps_ || (!is_done && !interval_.is_due(step))) return;
  write(is_done);
  const int64_t now = Clock::system().monotonic_ns();
  if (!is_done && interval_.note_kept(step, now, cost_ns())) agree_on_interval();
}

// Whether steps are kept, and after how many. Every rank calls it.
void KeptTraining::agree_on_keeping() {
  const int64_t steps = recovery_->keep_steps();
  // A copy of what does not fit into memory would not fit either, and what some ranks have is not the whole.
  const bool spills = core_.bare_session().values().spilled_bytes() > 0;
  int64_t said[] = {steps, -steps, spills ? 1 : 0};
  if (trains_together()) {
    core_.context.world().all_reduce(said, std::ssize(said), DType::kI64, comm::ReduceOp::kMax, kWho);
  }
  if (said[0] != -said[1]) {
    const auto text = [](int64_t number) { return number == 0 ? "auto" : std::to_string(number); };
    throw InvalidArgument("TESSERA_KEEP_STEPS is {} on one rank and {} on another: give it to all ranks alike",
                          text(said[0]), text(-said[1]));
  }
  keeps_ = said[2] == 0;
  if (!keeps_ && own_rank() == 0) {
    log_info(
        "what servers keep lies in files, of which no copy is kept: a job that loses a rank goes on from a checkpoint");
  }
  interval_ = KeepInterval(steps);
}

// What keeping has taken of this rank: the time that its training has waited, and what was computed beside it.
int64_t KeptTraining::cost_ns() const { return waited_ns_ + copies_.cpu_ns() + (buddies_ ? buddies_->cpu_ns() : 0); }

// All ranks keep the same steps, as many as the rank can for which it is dearest.
void KeptTraining::agree_on_interval() {
  int64_t steps = interval_.proposal();
  if (trains_together()) {
    core_.context.world().all_reduce(&steps, 1, DType::kI64, comm::ReduceOp::kMax, "after how many steps one is kept");
  }
  if (steps != interval_.interval() && own_rank() == 0) {
    log_info(
        "the values are kept after {}, which takes {:.2g}% of a step's time where it is done; TESSERA_KEEP_STEPS says "
        "after how many instead",
        steps == 1 ? "each step" : fmt::format("every {} steps", steps), 100 * interval_.part_of_step());
  }
  interval_.agree(steps);
}

void KeptTraining::keep_now() {
  if (keeps_ && kept_step_ != progress_.step) write(/*is_done=*/false);
}

void KeptTraining::finish() {
  if (copier_.leave_to_parent()) copies_.forget();
  copies_.finish();
  copier_.finish();
}

void KeptTraining::own_memory() {
  MemoryOwners::all().take(recovery_, this, [this] {
    finish();
    newest_ = nullptr;
  });
}

void KeptTraining::write(bool is_done) {
  const int64_t begin = Clock::system().monotonic_ns();
  const int64_t copied = copies_.cpu_ns();
  write_version(is_done);
  waited_ns_ += Clock::system().monotonic_ns() - begin - (copies_.cpu_ns() - copied);
}

void KeptTraining::write_version(bool is_done) {
  finish();
  own_memory();
  // What is copied now is overwritten next but one.
  if (buddies_) buddies_->wait();
  kept_step_ = progress_.step;
  // The first one of a process, and that of the end, is waited for.
  const bool is_beside = copies_beside_ && newest_ != nullptr && !is_done;
  if (is_beside) {
    auto& next = *reinterpret_cast<int64_t*>(newest_ + offsetof(Head, next_step));
    std::atomic_ref<int64_t>(next).store(progress_.step, std::memory_order_release);
  }
  const Head own = head(is_done);
  std::span<std::byte> to;
  try {
    if (!is_out_of_memory_) to = recovery_->memory().begin(size_bytes_);
  } catch (const IoError& error) {
    is_out_of_memory_ = true;
    log_warning("{}; a job that loses a rank goes on from a checkpoint", error.what());
  }
  if (to.empty()) {
    if (!buddies_) return;
    nothing_.resize(own_bytes_);
    const Head none{.own_bytes = own.own_bytes};
    std::memcpy(nothing_.data(), &none, sizeof(none));
    return buddies_->start(nothing_);
  }
  std::memcpy(to.data(), &own, sizeof(own));
  std::memcpy(to.data() + place_bytes(sizeof(Head)), pieces_text_.data(), pieces_text_.size());
  size_t at = place_bytes(sizeof(Head)) + place_bytes(pieces_text_.size());
  std::memcpy(to.data() + at, kept_state().data(), kept_state().size());
  at += state_room();
  if (kept_state().size() < progress_.data_state.size() && !std::exchange(has_said_state_, true)) {
    log_warning(
        "the state of the data set's source has {} bytes, and {} are kept: after a loss it draws its random numbers "
        "anew",
        progress_.data_state.size(), state_room());
  }
  std::vector<checkpoint::ViewCopy> copies;
  for (const auto& name : order_) {
    const session::ValuePlace place = core_.session().values().place(name);
    const TensorView kept(to.data() + at, place.type());
    if (const auto here = place.in_place()) {
      copies.push_back({*here, kept});
    } else {
      place.read_to(kept);
    }
    at += place_bytes(static_cast<size_t>(place.type().size_bytes()));
  }
  newest_ = to.data();
  copies_.begin(copies);
  const auto commit_copies = [this] {
    copies_.finish_in_background();
    recovery_->memory().commit();
  };
  if (is_beside && copier_.try_start(commit_copies)) return;
  copies_.finish();
  recovery_->memory().commit();
  if (buddies_) buddies_->start(to);
}

}  // namespace tessera::train
