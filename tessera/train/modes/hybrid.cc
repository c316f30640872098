#include "tessera/base/error.h"
#include "tessera/session/agree/rank_group.h"
#include "tessera/train/modes/mode.h"

namespace tessera::train {
namespace {

// Each rank has a graph, a data set and values of its own; the network's collectives, and the gradients of what is not
// layerwise_parallel, connect them.
class Hybrid final : public Mode {
 public:
  using Mode::Mode;

  bool has_own_statistics() const override { return true; }

  // Each rank waits for the others in every step.
  void compare_steps(int64_t of_an_epoch) const override {
    std::vector<int64_t> all(static_cast<size_t>(context_.size()));
    const std::vector<int64_t> counts(all.size(), 1);
    context_.world().all_gather(&of_an_epoch, all.data(), counts, DType::kI64, "comparing the steps of an epoch");
    for (size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank] == all[0]) continue;
      throw InvalidArgument(
          "train: rank {} has {} steps an epoch, rank 0 has {}; in hybrid_parallel they must be equal", rank, all[rank],
          all[0]);
    }
  }

  std::optional<ops::RankGroup> ranks_of_loss() const override { return session::rank_group(context_); }

  std::unique_ptr<session::Executable> compile(session::Session& session, const ir::Graph& graph,
                                               const InputSpecs&) const override {
    return session.compile_own(graph);
  }
  std::unique_ptr<session::Executable> compile_prediction(session::Session& session, const ir::Graph& graph,
                                                          bool) const override {
    return session.compile_own(graph);
  }

  bool compiles_together() const override { return false; }
  bool predicts_together() const override { return true; }

  SaveForm form_of_save(bool) const override { return SaveForm::kOwn; }
};

}  // namespace

std::unique_ptr<Mode> make_hybrid(const ModeParts& parts) { return std::make_unique<Hybrid>(parts); }

}  // namespace tessera::train
