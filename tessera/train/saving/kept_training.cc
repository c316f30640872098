#include "tessera/train/saving/kept_training.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/session/agree/gather_texts.h"

namespace tessera::train {
namespace {

constexpr const char* kWho = "going on after a loss";
constexpr size_t kPlaceAlignment = 64;
constexpr size_t kMaxId = 64;

size_t place_bytes(size_t bytes) { return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment; }

}  // namespace

// Before the values, which follow in the order of their names in the session, each at a multiple of kPlaceAlignment.
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
  uint64_t fingerprint = 0;  // of the values' names and types
  char id[kMaxId] = {};
};

struct KeptTraining::Version {
  Head head;
  std::span<const std::byte> values;

  // In a training a step counts, and that it is over is the last of all.
  int64_t order() const { return head.is_done != 0 ? std::numeric_limits<int64_t>::max() : head.step; }
};

KeptTraining::KeptTraining(ModelCore& core, TrainingIdentity& identity, TrainingProgress& progress)
    : core_(core), identity_(identity), progress_(progress), recovery_(core.context.recovery()) {
  if (recovery_ != nullptr) model_ = recovery_->next_number("model");
}

bool KeptTraining::trains_together() const { return core_.context.size() > 1 && core_.mode->is_shared(); }

void KeptTraining::measure() {
  const session::Session& session = core_.session();
  std::string text;
  size_bytes_ = place_bytes(sizeof(Head));
  for (const auto& name : session.names()) {
    const Type& type = session.values().type(name);
    text += fmt::format("{} {}", name, type);
    // Two pieces of equal types are not the same where a value is split in another way.
    for (const auto& layout : session.layouts(name)) text += " " + layout.to_string();
    text += "\n";
    size_bytes_ += place_bytes(static_cast<size_t>(type.size_bytes()));
  }
  fingerprint_ = hash_name(text);
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
    version.values = bytes;
    found.push_back(version);
  }
  return found;
}

// Whether all that a rank has is a copy of what every rank has.
bool KeptTraining::are_copies() const {
  if (!core_.mode->is_shared() || core_.mode->has_own_statistics()) return false;
  return std::ranges::all_of(core_.session().names(), [&](const std::string& name) {
    return core_.values->is_copy(name) || nn::is_accumulation_state(name);
  });
}

KeptTraining::Found KeptTraining::begin(const std::function<bool()>& load) {
  first_step_ = progress_.step;
  if (recovery_ == nullptr) return Found::kNothing;
  number_ = recovery_->next_number("training");
  keeps_ = true;
  measure();
  if (recovery_->generation() == 1) return Found::kNothing;

  // Each rank says what it has: the training, the model, and where it stood.
  std::vector<Version> versions = own_versions();
  std::string own;
  for (const Version& version : versions) {
    const bool fits = version.head.model != model_ ||
                      (version.head.fingerprint == fingerprint_ && version.values.size() == size_bytes_);
    if (fits) own += fmt::format("{} {} {}\n", version.head.training, version.head.model, version.order());
  }
  const std::vector<std::string> of_ranks =
      trains_together() ? session::gather_texts(core_.context.world(), own, kWho) : std::vector{own};
  struct Kept {
    int64_t training, model, order;
    auto operator<=>(const Kept&) const = default;
  };
  std::vector<std::set<Kept>> kept(of_ranks.size());
  Kept latest{};
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    for (const auto line : split(of_ranks[rank], '\n')) {
      const auto words = split(line, ' ');
      if (words.size() != 3) continue;
      const Kept one{parse_int(words[0], kWho), parse_int(words[1], kWho), parse_int(words[2], kWho)};
      kept[rank].insert(one);
      latest = std::max(latest, one);
    }
  }
  // Another model is trained later in the program: this training is repeated, and what was kept of that one stays.
  if (latest.training > number_ && latest.model != model_) {
    keeps_ = false;
    return Found::kNothing;
  }
  if (latest.training >= number_ && latest.model == model_) {
    // The newest that all have who have anything.
    std::set<Kept> common;
    size_t num_holders = 0;
    for (const auto& of_rank : kept) {
      if (of_rank.empty()) continue;
      if (num_holders++ == 0) {
        common = of_rank;
      } else {
        std::erase_if(common, [&](const Kept& one) { return !of_rank.contains(one); });
      }
    }
    std::erase_if(common, [&](const Kept& one) { return one.training < number_ || one.model != model_; });
    // Who has nothing may have been lost before its callbacks were called for the newest step: those are due again.
    // They were called for the one before, for without that rank nobody has made a later step.
    if (num_holders < kept.size() && common.size() > 1) common.erase(latest);
    if (!common.empty() && (num_holders == kept.size() || are_copies())) {
      const Kept chosen = *common.rbegin();
      const size_t own_rank = trains_together() ? static_cast<size_t>(core_.context.rank()) : 0;
      const auto here = std::ranges::find_if(versions, [&](const Version& version) {
        return version.head.training == chosen.training && version.head.model == model_ &&
               version.order() == chosen.order;
      });
      const bool is_here = kept[own_rank].contains(chosen);
      if (is_here) take(*here);
      if (num_holders < kept.size()) {
        const auto holder = std::ranges::find_if(kept, [](const auto& of_rank) { return !of_rank.empty(); });
        take_from(static_cast<size_t>(holder - kept.begin()), is_here);
      }
      core_.values->set_changed();
      core_.values->compare_again();
      const bool is_over = chosen.training > number_ || chosen.order == std::numeric_limits<int64_t>::max();
      if (core_.context.rank() == 0) {
        log_info("generation {}: the training goes on after step {}{}", recovery_->generation(), progress_.step,
                 num_holders < kept.size()
                     ? fmt::format(", {} of {} ranks have what others had", kept.size() - num_holders, kept.size())
                     : "");
      }
      return is_over ? Found::kDone : Found::kMiddle;
    }
  }
  if (load()) first_step_ = progress_.step;
  return Found::kNothing;
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
            .fingerprint = fingerprint_};
  std::strncpy(made.id, identity_.known_id().c_str(), kMaxId - 1);
  return made;
}

void KeptTraining::go_on_as(const Head& head) {
  progress_ = {.step = head.step,
               .epoch = head.epoch,
               .step_in_epoch = head.step_in_epoch,
               .position = {.epoch = head.epoch_of_data, .batch = head.batch},
               .rows_per_batch = head.rows_per_batch};
  first_step_ = head.first_step;
  identity_.go_on_as(head.id);
}

void KeptTraining::take(const Version& version) {
  go_on_as(version.head);
  session::Values& values = core_.session().values();
  size_t at = place_bytes(sizeof(Head));
  for (const auto& name : core_.session().names()) {
    const Type& type = values.type(name);
    values.write(name, TensorView(const_cast<std::byte*>(version.values.data() + at), type));
    at += place_bytes(static_cast<size_t>(type.size_bytes()));
  }
}

// Tells the ranks that have nothing what the holder has. Every rank calls it.
void KeptTraining::take_from(size_t holder, bool is_here) {
  comm::Communicator& world = core_.context.world();
  const auto root = static_cast<int>(holder);
  Head of_holder = head(/*is_done=*/false);
  world.broadcast(&of_holder, sizeof(of_holder), DType::kU8, root, kWho);
  if (!is_here) go_on_as(of_holder);
  session::Session& session = core_.session();
  for (const auto& name : session.names()) {
    // The sums of micro-batches are zeros between two steps.
    if (nn::is_accumulation_state(name) || session.values().type(name).shape.num_elements() == 0) continue;
    const auto in_place = session.values().in_place(name);
    Tensor copy = in_place ? Tensor() : session.values().read(name);
    const TensorView view = in_place ? *in_place : copy.view();
    world.broadcast(view.data, view.num_elements(), view.dtype, root, kWho);
    if (!in_place && !is_here) session.values().write(name, view);
  }
}

void KeptTraining::keep(bool is_done) {
  if (!keeps_) return;
  if (!is_done && (progress_.step - first_step_) % recovery_->keep_steps() != 0) return;
  const session::Session& session = core_.session();
  std::span<std::byte> to;
  try {
    to = recovery_->memory().begin(size_bytes_);
  } catch (const IoError& error) {
    keeps_ = false;
    log_warning("{}; a job that loses a rank goes on from a checkpoint", error.what());
    return;
  }
  const Head own = head(is_done);
  std::memcpy(to.data(), &own, sizeof(own));
  size_t at = place_bytes(sizeof(Head));
  for (const auto& name : session.names()) {
    const session::ValuePlace place = session.values().place(name);
    place.read_to(TensorView(to.data() + at, place.type()));
    at += place_bytes(static_cast<size_t>(place.type().size_bytes()));
  }
  recovery_->memory().commit();
}

}  // namespace tessera::train
